# SPDX-License-Identifier: Apache-2.0
"""An operator of ONNX Runtime's own beside its spelling, both run there."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.model.passes.spell.spell_contrib import CONTRIB, spell_contrib, why_left
from tests.unit.model.check_pass import run

__all__ = ["M", "check", "floats", "graph_of", "reason_of", "spelled"]

M = CONTRIB


def graph_of(
    body: str, inputs: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray], opset: int = 17
) -> ir.Model:
    """A model with the outputs y, and y1, y2, ... where `body` has them; inputs as the arrays are."""
    kinds = {
        name: onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    }
    text = f'<ir_version: 8, opset_import: ["" : {opset}, "{M}" : 1]> net () => (float y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.input.extend(kinds.values())
    names = sorted({name for node in proto.graph.node for name in node.output if name.rstrip("123") == "y"})
    del proto.graph.output[:]
    for name in names:
        kind = onnx.TensorProto.INT32 if name == "y3" else onnx.TensorProto.FLOAT
        proto.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for index, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{index}"
    return ir.from_proto(proto)


def spelled(graph: ir.Model) -> ir.Model:
    """A copy in standard operators alone."""
    copy = clone(graph)
    count = spell_contrib(copy)
    assert [(node.name, why) for node, why in why_left(copy)] == []
    assert count > 0
    return copy


def check(
    body: str,
    inputs: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    most: float = 2e-6,
    opset: int = 17,
) -> None:
    """Both compute the same; `most` is the largest distance, in units of the largest number."""
    graph = graph_of(body, inputs, weights or {}, opset)
    for want, got in zip(run(graph, inputs), run(spelled(graph), inputs), strict=True):
        assert want.shape == got.shape
        assert want.dtype == got.dtype
        assert np.isfinite(want).all()
        distance = np.abs(want.astype(np.float64) - got.astype(np.float64)).max(initial=0.0)
        assert distance <= most * np.abs(want).max(initial=1.0), distance


def reason_of(
    body: str, inputs: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray] | None = None
) -> str:
    """Why the one operator stays, which must leave nothing of a spelling behind."""
    graph = graph_of(body, inputs, weights or {})
    before = ir.to_proto(graph).SerializeToString()
    assert spell_contrib(graph) == 0
    assert ir.to_proto(graph).SerializeToString() == before
    ((_, reason),) = why_left(graph)
    return reason


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal numbers."""
    return rng.standard_normal(shape).astype(np.float32)
