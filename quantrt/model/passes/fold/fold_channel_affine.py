# SPDX-License-Identifier: Apache-2.0
"""A per-channel Mul, Div, Add or Sub after a convolution becomes part of its weights.

This is what is left of a batch normalization that was exported as arithmetic, of a bias added apart, and
of layer scale.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import absorb, constant_of, is_operator, only_consumer
from quantrt.model.passes.fold.scale_outputs import scale_outputs

__all__ = ["fold_channel_affine"]


def fold_channel_affine(graph: ir.Model) -> int:
    """Fold each such node that is the only reader of a Conv or ConvTranspose; how many."""
    count = 0
    for node in list(graph.graph):
        if not is_operator(node, "Add", "Sub", "Mul", "Div") or len(node.inputs) != 2:
            continue
        producer = _convolution_before(graph, node)
        if producer is None:
            continue
        affine = _affine(node, producer)
        if affine is not None and scale_outputs(graph, producer, *affine):
            if node.inputs[0] is not producer.outputs[0]:  # Add and Mul commute
                node.replace_input_with(0, producer.outputs[0])
            node.resize_inputs(1)
            absorb(producer, node)
            count += 1
    return count


def _convolution_before(graph: ir.Model, node: ir.Node) -> ir.Node | None:
    sides = (0, 1) if is_operator(node, "Add", "Mul") else (0,)
    for side in sides:
        value = node.inputs[side]
        producer = value.producer() if value is not None else None
        if is_operator(producer, "Conv", "ConvTranspose") and producer is not None:
            if producer.graph is graph.graph and only_consumer(producer.outputs[0]) is node:
                return producer
    return None


def _affine(node: ir.Node, producer: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Factor and offset, float64 [C] or [1]; None when the other operand is not one number per channel."""
    other = node.inputs[1] if node.inputs[0] is producer.outputs[0] else node.inputs[0]
    constant = constant_of(other)
    weight = constant_of(producer.inputs[1]) if len(producer.inputs) > 1 else None
    if (
        constant is None
        or weight is None
        or weight.ndim < 3
        or constant.ndim > weight.ndim
        or constant.dtype != weight.dtype
    ):
        return None
    aligned = constant.reshape((1,) * (weight.ndim - constant.ndim) + constant.shape)
    if aligned.size != aligned.shape[1]:  # constant along every axis but the channels
        return None
    number = aligned.reshape(-1).astype(np.float64)
    one, zero = np.ones(1), np.zeros(1)
    if is_operator(node, "Mul"):
        return number, zero
    if is_operator(node, "Div"):
        return (1.0 / number, zero) if (number != 0).all() else None
    return one, number if is_operator(node, "Add") else -number
