# SPDX-License-Identifier: Apache-2.0
"""Give OpenVINO a normalization of its own for the codes, where a residual sum reads the float result too.

After a transformer's sums (post-norm, as in BERT) a LayerNormalization is read twice: in 8 bits by products,
in float by the next sum. OpenVINO computes both in one kernel, which writes the float result to memory and,
for three products, the same codes three times. Written as two normalizations of one input, OpenVINO still
normalizes once; scale and bias go into the kernel that quantizes, which then writes codes and nothing else,
once, and again into the kernel of the sum, which reads the normalized input where it read the result.

So that OpenVINO does not merge the two, everything of the one for the codes is halved: its scale, its bias
and the quantization's step. Halves of floats are exact, and so are the codes.

Cores without a cache in common gain by it, others lose nothing. Not where floats are bf16: there OpenVINO
normalizes in f32 and converts for the one of the two, which takes longer than it spares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, all_names, constant_of, is_operator, take_name

__all__ = ["part_norms", "parts_norms"]

ELEMENTWISE = ("Add", "Sub", "Mul")
"""Readers whose kernel computes scale and bias on the way."""


@dataclass(frozen=True)
class _Split:
    """A normalization, the quantization of its result, and the constants of both."""

    node: ir.Node
    quantize: ir.Node
    constants: Sequence[np.ndarray]


def parts_norms(graph: ir.Model) -> bool:
    """Whether there is a normalization to part."""
    return any(_split(node) for node in graph.graph)


def part_norms(graph: ir.Model) -> None:
    """Make codes by LayerNormalization nodes of their own; in place."""
    splits = [split for node in graph.graph if (split := _split(node)) is not None]
    taken = all_names(graph) if splits else set()
    for split in splits:
        _part(graph, split, taken)


def _split(node: ir.Node) -> _Split | None:
    """What to part; None for a node that is no normalization, or where it would save nothing."""
    if not is_operator(node, "LayerNormalization") or any(value.uses() for value in node.outputs[1:]):
        return None
    result = node.outputs[0]
    quantizers = [user for user, index in result.uses() if is_operator(user, "QuantizeLinear") and index == 0]
    others = [user for user, _ in result.uses() if user not in quantizers]
    if len(quantizers) != 1 or not others or result.is_graph_output():
        return None
    if not all(user.graph is node.graph and is_operator(user, *ELEMENTWISE) for user in others):
        return None
    constants = [constant_of(value) for value in (*node.inputs[1:], quantizers[0].inputs[1])]
    arrays = [array for array in constants if array is not None and _has_exact_half(array)]
    return _Split(node, quantizers[0], arrays) if len(arrays) == len(constants) else None


def _has_exact_half(array: np.ndarray) -> bool:
    return array.dtype == np.float32 and bool(np.array_equal(array * np.float32(0.5) * np.float32(2), array))


def _part(graph: ir.Model, split: _Split, taken: set[str]) -> None:
    """Add the normalization for the codes, and let the quantization read it."""
    node, result = split.node, split.node.outputs[0]
    *parameters, step = [
        add_constant(graph, f"{result.name}_half_{index}", array * np.float32(0.5), taken)
        for index, array in enumerate(split.constants)
    ]
    inputs, attributes = [node.inputs[0], *parameters], list(node.attributes.values())
    half = ir.Node("", "LayerNormalization", inputs, attributes, num_outputs=1)
    half.name = take_name(f"{node.name}_half", taken)
    half.outputs[0].name = take_name(f"{result.name}_half", taken)
    half.outputs[0].shape, half.outputs[0].type = result.shape, result.type
    graph.graph.insert_after(node, half)
    split.quantize.replace_input_with(0, half.outputs[0])
    split.quantize.replace_input_with(1, step)
