# SPDX-License-Identifier: Apache-2.0
"""Constants with a number for every channel, or one for all, as kernels read them: one for every channel."""

from __future__ import annotations

import numpy as np

from quantrt.regions.expression import Expression
from quantrt.tactics.cuda.tactic import Constant, Workload

__all__ = ["bias_constant", "channel_constants"]


def channel_constants(workload: Workload, expression: Expression, channels: int) -> tuple[Constant, ...]:
    """The constant operands of an expression as float32 [C], in their order."""
    names = [operand.name for operand in expression.operands if operand.kind == "constant"]
    arrays = workload.constants
    return tuple(_constant(f"{name}:channels", arrays[name], channels, "float32") for name in names)


def bias_constant(workload: Workload, name: str, channels: int, dtype: str) -> Constant:
    """A constant as a library's bias: [C] of the type that it adds in."""
    return _constant(f"{name}:bias:{dtype}", workload.constants[name], channels, dtype)


def _constant(key: str, array: np.ndarray, channels: int, dtype: str) -> Constant:
    def make() -> np.ndarray:
        return np.ascontiguousarray(np.broadcast_to(array.astype(dtype).reshape(-1), (channels,)))

    return Constant(key, make)
