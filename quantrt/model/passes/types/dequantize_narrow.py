# SPDX-License-Identifier: Apache-2.0
"""Weights in less than 8 bits, or with scales for blocks, become floats for want of kernels that read them.

w = (q - zero_point) * scale          in float32, then in the type of the scale
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.edit import add_constant, constant_of, int_attribute, is_operator

__all__ = ["dequantize_narrow"]

Array = np.ndarray[Any, Any]

BYTE = 8


def dequantize_narrow(graph: ir.Model, where: Callable[[ir.Node], bool] | None = None) -> int:
    """Replace each DequantizeLinear of the main graph that reads such a constant; how many.

    Args:
        where: says of which of them; None for all.

    Raises:
        ModelError: scales or zero points do not fit the codes; names the node.
    """
    count = 0
    for node in list(graph.graph):
        if where is not None and not where(node):
            continue
        array = _floats(node) if is_operator(node, "DequantizeLinear") else None
        output = node.outputs[0]
        if array is None or output.is_graph_output():
            continue
        name = output.name or node.name or "weight"
        output.name = None  # frees it
        output.replace_all_uses_with(add_constant(graph, name, array))
        graph.graph.remove(node, safe=True)
        count += 1
    return count


def _floats(node: ir.Node) -> Array | None:
    """What a node makes of narrow codes or blocks; None for other nodes."""
    codes, scale = node.inputs[0], constant_of(node.inputs[1])
    stored = constant_of(codes)
    block = int_attribute(node, "block_size", 0)
    if stored is None or codes is None or codes.const_value is None or scale is None:
        return None
    if codes.const_value.dtype.bitwidth >= BYTE and not block:
        return None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    points = constant_of(zero)
    if zero is not None and points is None:
        return None
    axis = int_attribute(node, "axis", 1)
    wide = stored.astype(np.float32)
    if points is not None:
        wide = wide - _spread(node, points.astype(np.float32), wide.shape, axis, block)
    factor = _spread(node, scale.astype(np.float32), wide.shape, axis, block)
    return np.asarray((wide * factor).astype(scale.dtype))


def _spread(node: ir.Node, values: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """Scales or zero points in a shape that broadcasts to that of the codes."""
    if values.size == 1 and not block:
        return values.reshape(())
    rank = len(shape)
    fits = -rank <= axis < rank and (values.ndim == rank if block else values.shape == (shape[axis],))
    if fits and not block:
        return values.reshape([-1] + [1] * (rank - 1 - axis % rank))
    if fits:
        repeated = np.repeat(values, block, axis=axis)
        cut = np.take(repeated, range(min(shape[axis], repeated.shape[axis])), axis=axis)
        if cut.shape == shape:
            return cut
    raise ModelError(
        f"cannot dequantize the weight of '{node.name}': its scales do not fit its codes",
        got=f"shape {list(values.shape)} along axis {axis}" + (f" in blocks of {block}" if block else ""),
        expected=f"scales for codes of shape {list(shape)}",
    )
