# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear and DequantizeLinear nodes of a graph: what they round, who reads it, with which numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator

__all__ = [
    "DEQUANTIZE",
    "MOVERS",
    "QUANTIZE",
    "WEIGHTED",
    "code_type",
    "codes_behind",
    "input_of",
    "is_constant",
    "numbers",
    "pairs_of",
    "reaches_output",
    "readers_of",
    "weight_index",
]

Array = np.ndarray[Any, Any]

QUANTIZE = "QuantizeLinear"
DEQUANTIZE = "DequantizeLinear"

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators that multiply by weights."""

MOVERS = (
    "Concat", "DepthToSpace", "Expand", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators that make no new values: what they hand on is as rounded as what they get."""


def input_of(node: ir.Node, index: int) -> ir.Value | None:
    """An input; None where the node has none."""
    return node.inputs[index] if index < len(node.inputs) else None


def numbers(node: ir.Node, index: int) -> Array | None:
    """The constant scale (index 1) or zero point (index 2) of a node; None where it is computed or absent."""
    return constant_of(input_of(node, index))


def code_type(node: ir.Node) -> ir.DataType | None:
    """The element type of the codes that a node writes or reads; None where the graph does not tell."""
    if is_operator(node, DEQUANTIZE):
        codes = node.inputs[0]
        if codes is None:
            return None
        return codes.dtype if codes.const_value is None else codes.const_value.dtype
    zero = input_of(node, 2)
    if zero is not None:
        return zero.dtype if zero.const_value is None else zero.const_value.dtype
    attribute = node.attributes.get("output_dtype")
    chosen = 0 if attribute is None else attribute.as_int()
    return ir.DataType(chosen) if chosen else ir.DataType.UINT8


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is a constant, or made of constants by moving, quantizing and dequantizing alone."""
    while value is not None and constant_of(value) is None:
        maker = value.producer()
        if maker is None or not is_operator(maker, QUANTIZE, DEQUANTIZE, "Cast", *MOVERS):
            return False
        value = maker.inputs[0] if maker.inputs else None
    return value is not None


def weight_index(node: ir.Node) -> int | None:
    """Which input of a product is its weight; None for a product of two activations."""
    if not is_operator(node, *WEIGHTED):
        return None
    if is_constant(input_of(node, 1)):
        return 1
    return 0 if is_operator(node, "MatMul", "Gemm") and is_constant(input_of(node, 0)) else None


def codes_behind(value: ir.Value | None) -> ir.Node | None:
    """The DequantizeLinear whose result a value is, moved or not; of a Concat, if all its inputs are."""
    while value is not None:
        maker = value.producer()
        if maker is None or is_operator(maker, DEQUANTIZE):
            return maker
        if is_operator(maker, "Concat"):
            found = [codes_behind(each) for each in maker.inputs]
            return found[0] if all(node is not None for node in found) else None
        if not is_operator(maker, *MOVERS):
            return None
        value = maker.inputs[0]
    return None


def readers_of(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """The nodes that compute with a value, and by which input, over those that only move it."""
    for moved in _moved(value):
        yield from ((node, index) for node, index in moved.uses() if not _moves(node, index))


def reaches_output(value: ir.Value) -> bool:
    """Whether a value, moved or not, is an output of the model."""
    return any(moved.is_graph_output() for moved in _moved(value))


def _moved(value: ir.Value) -> Iterator[ir.Value]:
    """A value, and what operators that move values make of it."""
    pending, seen = [value], {value}
    while pending:
        found = pending.pop()
        yield found
        made = [out for node, index in found.uses() if _moves(node, index) for out in node.outputs]
        pending += [out for out in made if out not in seen]
        seen.update(made)


def _moves(node: ir.Node, index: int) -> bool:
    return is_operator(node, *MOVERS) and (index == 0 or node.op_type == "Concat")


def pairs_of(graph: ir.Graph) -> Iterator[tuple[ir.Node, ir.Node]]:
    """Each QuantizeLinear of an activation with each DequantizeLinear that reads its codes."""
    for node in graph:
        if not is_operator(node, QUANTIZE) or is_constant(node.inputs[0]):
            continue
        for reader, _ in node.outputs[0].uses():
            if is_operator(reader, DEQUANTIZE):
                yield node, reader
