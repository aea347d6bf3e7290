# SPDX-License-Identifier: Apache-2.0
"""Small plans for tests, made from ONNX text, for either library."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.model import Fingerprint
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions, Layer, LibraryModel, Plan

LIBRARIES = ("onnxruntime", "openvino")

LINEAR = "linear (float[N,32] x) => (float[N,32] y) { h = MatMul(x, w) y = Relu(h) }"


def linear_weight() -> np.ndarray:
    """f32 [32, 32] with values that bfloat16 cannot hold; 4 KB, so it is stored apart from the graph."""
    return np.random.default_rng(5).standard_normal((32, 32)).astype(np.float32)


def make_graph(text: str, weights: Mapping[str, np.ndarray] | None = None) -> ir.Model:
    """A graph from ONNX text, such as LINEAR, with initializers by name."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}')
    for name, array in (weights or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(model)


def lower(graph: ir.Model, library: str) -> LibraryModel:
    return {"onnxruntime": lower_to_onnxruntime, "openvino": lower_to_openvino}[library](graph)


def make_model(library: str, text: str, weights: Mapping[str, np.ndarray] | None = None) -> LibraryModel:
    return lower(make_graph(text, weights), library)


def make_plan(
    library: str,
    text: str = LINEAR,
    weights: Mapping[str, np.ndarray] | None = None,
    **fields: object,
) -> Plan:
    """A plan of the text's model; `fields` replace those of the plan. LINEAR gets its weight by itself."""
    if text is LINEAR:
        weights = {"w": linear_weight()}
    graph = make_graph(text, weights)
    initializers = set(graph.graph.initializers)
    values = {
        "model": lower(graph, library),
        "options": ExecOptions(),
        "inputs": tuple(_spec(value) for value in graph.graph.inputs if value.name not in initializers),
        "outputs": tuple(_spec(value) for value in graph.graph.outputs),
        "precision": "fp32",
        "layers": (
            Layer(name="h", op_type="MatMul", precision="fp32", reason="asked for", sources=("a", "b")),
        ),
        "fingerprint": Fingerprint("g" * 64, "w" * 64),
        "device": {"cpu": "A", "physical_cores": 2, "isa": ["avx2"], "libraries": {library: "1.0"}},
        "report": {"metric": "sqnr", "values": [1.5, None, True]},
    }
    return Plan(**{**values, **fields})


def _spec(value: ir.Value) -> TensorSpec:
    shape = None
    if value.shape is not None:
        shape = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    kind = value.dtype
    return TensorSpec(value.name, "string" if kind == ir.DataType.STRING else kind.numpy().name, shape)
