# SPDX-License-Identifier: Apache-2.0
"""What a region is built around: a product, a pool, or a norm of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.regions.expression import Expression
from quantrt.regions.expressions.builder import ExpressionBuilder, Register
from quantrt.regions.facts.facts import Facts
from quantrt.regions.facts.shape_rules import Shape
from quantrt.regions.region import Formula

__all__ = ["FLOATS", "Anchor", "is_float", "is_per_channel", "is_per_image", "is_per_row"]

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclass(frozen=True)
class Anchor:
    """A Gemm, MatMul or Conv with a constant weight, a pool, or a norm over groups of channels.

    Attributes:
        x: the activation.
        result: the node's output; of a gate the left half of its columns.
        other: of a gate the right half.
        members: positions of the nodes that belong to it beside its own.
        channels: size of the output's channel axis.
        channels_axis: of a constant that runs along it, counted from the end.
        start: writes what the node does to the accumulator, its bias for one; the register of `result`,
            and of `other`.
        formula: of the region, given its epilogue.
        more: activations that the formula reads behind x, besides its epilogue's.
        takes_images: the epilogue may read tensors of one element for every channel of an image.
        takes_rows: it may read tensors of one element for each row.
    """

    position: int
    x: ir.Value
    result: ir.Value
    channels: int
    channels_axis: int
    start: Callable[[ExpressionBuilder], tuple[Register, ...]]
    formula: Callable[[Expression], Formula]
    other: ir.Value | None = None
    members: tuple[int, ...] = ()
    more: tuple[ir.Value, ...] = ()
    takes_images: bool = False
    takes_rows: bool = False

    @property
    def positions(self) -> tuple[int, ...]:
        """Of all its nodes."""
        return (self.position, *self.members)

    @property
    def results(self) -> tuple[ir.Value, ...]:
        """What its expression starts from, in the order of `start`."""
        return (self.result,) if self.other is None else (self.result, self.other)


def is_float(value: ir.Value | None, facts: Facts) -> bool:
    """Whether a value is a float activation on the device."""
    return value is not None and value.dtype in FLOATS and facts.is_activation(value)


def is_per_channel(shape: tuple[int, ...], channels: int, channels_axis: int) -> bool:
    """Whether a constant of this shape has one element for every channel, along their axis."""
    if len(shape) < -channels_axis or shape[channels_axis] != channels:
        return False
    return all(size == 1 for axis, size in enumerate(shape, start=-len(shape)) if axis != channels_axis)


def is_per_image(shape: Shape | None, full: Shape | None) -> bool:
    """Whether a tensor is [N or 1, C, 1, ...] beside [N, C, ...]: one element per channel of an image."""
    if shape is None or full is None or len(shape) != len(full) or len(full) < 3:
        return False
    return shape[0] in (1, full[0]) and shape[1] == full[1] and all(size == 1 for size in shape[2:])


def is_per_row(shape: Shape | None, full: Shape | None) -> bool:
    """Whether a tensor is [..., 1] beside [..., N]: one element for each row of a product."""
    if shape is None or full is None or len(shape) != len(full) or not full:
        return False
    return shape[:-1] == full[:-1] and shape[-1] == 1 and full[-1] != 1
