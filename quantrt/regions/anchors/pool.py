# SPDX-License-Identifier: Apache-2.0
"""Pools over windows, and means and maxima over whole images."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.regions.anchors.anchor import Anchor, is_float
from quantrt.regions.anchors.conv import ints_of, pads_of
from quantrt.regions.expression import Expression
from quantrt.regions.facts.facts import Facts
from quantrt.regions.facts.shape_rules import Shape
from quantrt.regions.region import Pool

__all__ = ["find_pool"]

_WINDOWS = {"MaxPool": "max", "AveragePool": "average"}
_GLOBAL = {"GlobalMaxPool": "max", "GlobalAveragePool": "average"}
_REDUCTIONS = {"ReduceMax": "max", "ReduceMean": "average"}

_MAX_SPATIAL = 2
_MIN_REDUCED_RANK = 4
"""Over the last of three axes a reduction is one over rows, a part of a norm for one."""


def find_pool(position: int, facts: Facts) -> Anchor | str | None:
    """The anchor of a node; why there is none; None when it pools nothing."""
    node = facts.nodes[position]
    if not is_operator(node, *_WINDOWS, *_GLOBAL, *_REDUCTIONS) or not node.inputs:
        return None
    x = node.inputs[0]
    shape = facts.sizes.shape(x)
    if is_operator(node, *_REDUCTIONS) and not _is_over_images(node, shape):
        return None
    reason = _why_not(node, shape, facts)
    if x is None or shape is None or reason is not None:
        return reason or "the rank of its input is not known"
    channels = shape[1]
    if not isinstance(channels, int):
        return "the number of its channels is not known"
    pads = _pads(node, facts, shape) if node.op_type in _WINDOWS else ()
    if pads is None:
        return "its padding is negative, or depends on a size that is not known"
    is_global = node.op_type not in _WINDOWS or _is_whole(node, shape, pads)

    def formula(epilogue: Expression) -> Pool:
        return _formula(node, () if is_global else pads, epilogue)

    axis = 1 - len(shape) if _keeps_axes(node) else -1
    return Anchor(
        position, x, node.outputs[0], channels, axis, lambda b: (b.operand("accumulator"),), formula
    )


def _is_over_images(node: ir.Node, shape: Shape | None) -> bool:
    """Whether a reduction is over all axes behind the second, of which there are two or more."""
    if shape is None or len(shape) < _MIN_REDUCED_RANK:
        return False
    attribute = node.attributes.get("axes")
    given = node.inputs[1] if len(node.inputs) > 1 else None
    array = constant_of(given)
    if attribute is None and array is None:
        return False
    axes: Sequence[int] = [] if array is None else array.reshape(-1).tolist()
    if attribute is not None:
        axes = attribute.as_ints()
    return sorted(int(axis) % len(shape) for axis in axes) == list(range(2, len(shape)))


def _why_not(node: ir.Node, shape: Shape | None, facts: Facts) -> str | None:
    if not is_float(node.inputs[0], facts):
        return "its input is not a float activation"
    if any(value.name and facts.is_read(value) for value in node.outputs[1:]):
        return "it has a second output"
    rank = 0 if shape is None else len(shape) - 2
    if rank < 1:
        return "the rank of its input is not known" if shape is None else "its input has no spatial axes"
    if node.op_type in _WINDOWS and rank > _MAX_SPATIAL:
        return f"its windows have {rank} axes"
    return None


def _pads(node: ir.Node, facts: Facts, shape: Shape) -> tuple[int, ...] | None:
    rank = len(shape) - 2
    kernel = ints_of(node, "kernel_shape", rank)
    pads = pads_of(node, facts, kernel, ints_of(node, "strides", rank), ints_of(node, "dilations", rank))
    return None if pads is None or min(pads) < 0 else pads


def _is_whole(node: ir.Node, shape: Shape, pads: Sequence[int]) -> bool:
    """Whether the only window is the whole image."""
    rank = len(shape) - 2
    is_dense = not any(pads) and ints_of(node, "dilations", rank) == (1,) * rank
    return is_dense and ints_of(node, "kernel_shape", rank) == shape[2:]


def _keeps_axes(node: ir.Node) -> bool:
    return node.op_type not in _REDUCTIONS or bool(int_attribute(node, "keepdims", 1))


def _formula(node: ir.Node, pads: Sequence[int], epilogue: Expression) -> Pool:
    """Of windows that are padded so; without any pads, of one window for a whole image."""
    rank = len(pads) // 2
    is_global = not rank
    mode = node.attributes.get("auto_pad")
    is_same = mode is not None and mode.as_string().startswith("SAME")
    return Pool(
        x=(node.name or "", 0),
        kind={**_WINDOWS, **_GLOBAL, **_REDUCTIONS}[node.op_type],
        kernel=() if is_global else ints_of(node, "kernel_shape", rank),
        strides=() if is_global else ints_of(node, "strides", rank),
        dilations=() if is_global else ints_of(node, "dilations", rank),
        pads=tuple(pads),
        has_ceil=not is_same and bool(int_attribute(node, "ceil_mode", 0)),
        counts_padding=bool(int_attribute(node, "count_include_pad", 0)),
        is_global=is_global,
        keeps_axes=_keeps_axes(node),
        epilogue=epilogue,
    )
