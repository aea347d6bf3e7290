# SPDX-License-Identifier: Apache-2.0
"""A GatherND that takes every element where it lies is a view.

    GatherND(x, Concat(Unsqueeze(rows), Unsqueeze(columns)))  ->  Unsqueeze(x)

with rows the places 0, 1, ... along one axis of the result and columns those along another: how vectorized
functions look up a mask of [batch, keys] for [batch, heads, queries, keys], as transformers exports them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, int_attribute, is_operator, take_place
from quantrt.ir.sources import SOURCES_KEY, sources_of
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["whole_gathers"]

AXES_OPSET = 13
"""From which on Unsqueeze takes its axes as an input."""


def whole_gathers(graph: ir.Model) -> int:
    """Rewrite the main graph; how many."""
    if graph.opset_imports.get("", AXES_OPSET) < AXES_OPSET:
        return 0
    count = 0
    for node in list(graph.graph):
        new_axes = _new_axes(node)
        if new_axes is None:
            continue
        axes = add_constant(graph, f"{node.name}.axes", np.array(new_axes, np.int64))
        view = ir.Node("", "Unsqueeze", [node.inputs[0], axes], name=node.name)
        view.metadata_props[SOURCES_KEY] = "\n".join(sources_of(node))
        take_place(graph, node, [view], view.outputs[0])
        count += 1
    if count:
        remove_unused(graph)
    return count


def _new_axes(node: ir.Node) -> list[int] | None:
    """Where axes of size 1 make x into the result; None where elements are left out or move."""
    if not is_operator(node, "GatherND") or int_attribute(node, "batch_dims", 0) or node.inputs[0] is None:
        return None
    x, places, result = node.inputs[0].shape, node.inputs[1], node.outputs[0].shape
    index = None if places is None else places.producer()
    if x is None or result is None or index is None or not is_operator(index, "Concat"):
        return None
    if int_attribute(index, "axis", 0) not in (-1, len(result)) or len(index.inputs) != len(x):
        return None
    counted = [_counted_axis(part) for part in index.inputs]
    if any(axis is None for axis in counted):
        return None
    axes = [len(result) + axis + 1 for axis in counted if axis is not None]  # less the axis of the Concat
    if axes != sorted(set(axes)) or axes[0] < 0 or [result[axis] for axis in axes] != list(x.dims):
        return None
    others = [axis for axis in range(len(result)) if axis not in axes]
    return others if all(result[axis] == 1 for axis in others) else None


def _counted_axis(value: ir.Value | None) -> int | None:
    """The axis, from the last, -1, along which elements are 0, 1, 2, ... and the same along all others."""
    if value is None or value.shape is None:
        return None
    constant = constant_of(value)
    if constant is not None:
        long = [axis - constant.ndim for axis, size in enumerate(constant.shape) if size > 1]
        is_counted = len(long) == 1 and np.array_equal(constant.ravel(), np.arange(constant.size))
        return long[0] if is_counted else None
    node = value.producer()
    if node is None:
        return None
    if is_operator(node, "Range"):
        start, _, step = (constant_of(part) for part in node.inputs)
        is_counting = start is not None and step is not None and start == 0 and step == 1
        return -1 if is_counting else None
    if is_operator(node, "Expand"):
        return _counted_axis(node.inputs[0])
    axes = constant_of(node.inputs[1]) if is_operator(node, "Unsqueeze") else None
    axis = None if axes is None else _counted_axis(node.inputs[0])
    if axes is None or axis is None:
        return None
    rank = len(value.shape)
    kept = [place for place in range(rank) if place not in {int(new) % rank for new in axes}]
    return kept[axis] - rank
