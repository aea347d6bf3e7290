# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of passes: models from ONNX text, and the proof that a pass keeps their results."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from quantrt.errors import ModelError
from quantrt.ir.clone import clone
from quantrt.model.load import load_model


def proto_of(
    body: str,
    *,
    inputs: str = "float[2,4,6,6] x",
    outputs: str = "float[...] y",
    opset: int = 17,
    weights: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """The model of `body`; `weights` become its initializers, `[...]` is a shape that is not declared."""
    text = f'<ir_version: 8, opset_import: ["": {opset}]> graph ({inputs}) => ({outputs}) {{ {body} }}'
    proto = onnx.parser.parse_model(text.replace("[...]", "[UNDECLARED]"))
    _forget_shapes(proto.graph)
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return proto


def _forget_shapes(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 1 and dims[0].dim_param == "UNDECLARED":
            value.type.tensor_type.ClearField("shape")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _forget_shapes(attribute.g)


def model_of(body: str, **options: object) -> ir.Model:
    """`proto_of` as a graph."""
    return ir.from_proto(proto_of(body, **options))


def named_model_of(body: str, **options: object) -> ir.Model:
    """`model_of` with a name for each node, and the shapes that follow from its inputs and constants."""
    model = model_of(body, **options)
    for number, node in enumerate(model.graph):
        node.name = node.name or f"{node.op_type}_{number}"
    return ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(model), data_prop=True))


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    """The file of a model."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def error_of(path: Path) -> ModelError:
    """Why a file cannot be loaded."""
    with pytest.raises(ModelError) as caught:
        load_model(path)
    return caught.value


def run(model: ir.Model | onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes, every node as written."""
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


def random_feeds(model: ir.Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A random float32 array per input; a symbolic size is 2."""
    return {
        value.name: rng.standard_normal(
            [dim if isinstance(dim, int) else 2 for dim in value.shape.dims]
        ).astype(np.float32)
        for value in model.graph.inputs
        if value.name not in model.graph.initializers
    }


def check_pass(
    apply: Callable[[ir.Model], int],
    model: ir.Model,
    rng: np.random.Generator,
    *,
    changes: int,
    rtol: float,
    atol: float,
) -> ir.Model:
    """Apply a pass to a clone of `model`; it reports `changes`, and outputs stay equal and keep their names.

    Returns the changed clone; `model` itself must be as before.
    """
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    changed = clone(model)
    assert apply(changed) == changes
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    assert [value.name for value in changed.graph.outputs] == [value.name for value in model.graph.outputs]
    feeds = random_feeds(model, rng)
    for want, got in zip(run(model, feeds), run(changed, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    assert apply(changed) == 0, "a second application finds nothing left"
    return changed


def op_types(model: ir.Model) -> list[str]:
    """Operators of the main graph, in order."""
    return [node.op_type for node in model.graph]
