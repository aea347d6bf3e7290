# SPDX-License-Identifier: Apache-2.0
"""What a region is built around: a product, or a pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.regions.builder import ExpressionBuilder, Register
from quantrt.regions.expression import Expression
from quantrt.regions.facts import Facts
from quantrt.regions.region import Formula

__all__ = ["Anchor", "is_float", "is_per_channel"]

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclass(frozen=True)
class Anchor:
    """A Gemm, MatMul or Conv with a constant weight, or a pool.

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
