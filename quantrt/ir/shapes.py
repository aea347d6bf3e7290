# SPDX-License-Identifier: Apache-2.0
"""Shapes and element types of every value, as far as they can be known without running the model."""

from __future__ import annotations

import logging

import onnx
import onnx.version_converter
import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.ir.split import split_weights

__all__ = ["ONNX_ERRORS", "infer_shapes"]

logger = logging.getLogger(__name__)

ONNX_ERRORS: tuple[type[Exception], ...] = (
    onnx.checker.ValidationError,
    onnx.defs.SchemaError,
    onnx.shape_inference.InferenceError,
    onnx.version_converter.ConvertError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
)
"""What ONNX's C++ code raises on a model it cannot follow; its own classes share no base but Exception."""

_UNKNOWN_TO_ONNX = ("GroupNormalization",)
"""Operators without an inference of their own, whose result is of the type and shape of their first input."""

_MAX_VECTOR = 1 << 20  # longer than any vocabulary's bias; a shape has a handful of elements


def infer_shapes(graph: ir.Model, *, follow_values: bool = True) -> None:
    """Fill in the shapes and element types that ONNX's inference finds; what is known already is kept.

    Best effort: an operator that inference does not know leaves its outputs as they are. Large weights
    take part with their shape alone. Unknown sizes get a symbol such as "unk__0".

    Args:
        follow_values: compute small values that depend on shapes too, such as the target of a Reshape.
    """
    if not follow_values or any(value.shape is None for node in graph.graph for value in node.outputs):
        _infer(graph, follow_values=False)
    if follow_values and not _has_long_vector(graph):
        _infer(graph, follow_values=True)


def _infer(graph: ir.Model, *, follow_values: bool) -> None:
    protobuf, _ = split_weights(graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(
            _with_stand_ins(graph, protobuf), check_type=False, strict_mode=False, data_prop=follow_values
        )
    except ONNX_ERRORS as error:
        logger.debug("shape inference failed: %s", error)
        return
    found = ir.from_proto(inferred)
    for mine, theirs in zip(graph.graphs(), found.graphs(), strict=True):
        _merge(mine, theirs)


def _with_stand_ins(graph: ir.Model, protobuf: bytes) -> bytes:
    """The model with Identity for operators that inference says nothing of, in its main part."""
    if not any(is_operator(node, *_UNKNOWN_TO_ONNX) for node in graph.graph):
        return protobuf
    proto = onnx.ModelProto.FromString(protobuf)
    for node in proto.graph.node:
        if node.op_type in _UNKNOWN_TO_ONNX and node.domain in ("", "ai.onnx"):
            stand_in = onnx.helper.make_node("Identity", node.input[:1], node.output[:1], node.name)
            node.CopyFrom(stand_in)
    found: bytes = proto.SerializeToString()
    return found


def _has_long_vector(graph: ir.Model) -> bool:
    """Whether following values could take unbounded memory: ONNX makes one object per element of a vector."""
    values = [value for part in graph.graphs() for value in (*part.inputs, *part.initializers.values())]
    values += [value for node in graph.graph.all_nodes() for value in node.outputs]
    for value in values:
        if value.shape is not None and len(value.shape) == 1:
            size = value.shape[0]
            if isinstance(size, int) and size > _MAX_VECTOR:
                return True
    return False


def _merge(mine: ir.Graph, theirs: ir.Graph) -> None:
    known = {value.name: value for node in theirs for value in node.outputs if value.name}
    for node in mine:
        for value in node.outputs:
            source = known.get(value.name or "")
            if source is None:
                continue
            if value.type is None:
                value.type = source.type
            value.shape = _merged(value.shape, source.shape)


def _merged(old: ir.Shape | None, new: ir.Shape | None) -> ir.Shape | None:
    """The better known of two sizes, axis by axis; `old` wins a tie and a contradiction in rank."""
    if old is None or new is None:
        return new if old is None else old
    if len(old) != len(new):
        return old
    pairs = zip(old.dims, new.dims, strict=True)
    return ir.Shape([b if _knowledge(b) > _knowledge(a) else a for a, b in pairs])


def _knowledge(dim: int | ir.SymbolicDim) -> int:
    if isinstance(dim, int):
        return 2
    return 1 if dim.value is not None else 0
