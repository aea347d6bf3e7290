# SPDX-License-Identifier: Apache-2.0
"""Shapes and element types of every value, as far as they can be known without running the model."""

from __future__ import annotations

import logging

import onnx
import onnx.version_converter
import onnx_ir as ir

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


def infer_shapes(graph: ir.Model) -> None:
    """Fill in the shapes and element types that ONNX's inference finds; what is known already is kept.

    Best effort: an operator that inference does not know leaves its outputs as they are. Large weights
    take part with their shape alone. Unknown sizes get a symbol such as "unk__0".
    """
    protobuf, _ = split_weights(graph)
    try:
        inferred = onnx.shape_inference.infer_shapes(
            protobuf, check_type=False, strict_mode=False, data_prop=True
        )
    except ONNX_ERRORS as error:
        logger.debug("shape inference failed: %s", error)
        return
    found = ir.from_proto(inferred)
    for mine, theirs in zip(graph.graphs(), found.graphs(), strict=True):
        _merge(mine, theirs)


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
