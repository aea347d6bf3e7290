# SPDX-License-Identifier: Apache-2.0
"""Images of a workload whose pixels lie further apart than they have channels: slices of larger ones."""

from __future__ import annotations

from typing import Any, Protocol

from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.tactics.cuda.tactic import TensorFacts, Workload

__all__ = ["PITCH_BYTES", "gaps_of", "pixel_options"]

PITCH_BYTES = 16
"""What pixels with gaps between are multiples of apart, for vectors and for the copy engine."""


class _Problem(Protocol):
    @property
    def x_pitch(self) -> int:
        """Elements from one pixel of x to the next; 0 where there is no gap between."""

    @property
    def pitches(self) -> tuple[int, ...]:
        """The same of the tensors behind x, then of the outputs; empty where none has gaps."""


def gaps_of(workload: Workload) -> tuple[int, tuple[int, ...]]:
    """`x_pitch` and `pitches` of its problem."""
    read = [_pitch(facts) for facts in workload.inputs]
    stored = list(workload.pitches) or [0] * len(workload.outputs)
    others = (*read[1:], *stored)
    return read[0], others if any(others) else ()


def pixel_options(problem: _Problem) -> dict[str, Any]:
    """What a runner is told of it, see runtime/cuda/operands/pixel_rows.py; nothing without gaps."""
    found: dict[str, Any] = {"x_pitch": problem.x_pitch} if problem.x_pitch else {}
    return {**found, "pitches": list(problem.pitches)} if problem.pitches else found


def _pitch(facts: TensorFacts) -> int:
    """Elements between pixels whose channels lie next to each other; 0 where kernels cannot read them so."""
    if len(facts.shape) < 3 or facts.strides[1] != 1:
        return 0
    axes = [axis for axis in (*range(len(facts.shape) - 1, 1, -1), 0) if facts.shape[axis] > 1]
    pitch = facts.strides[axes[0]] if axes else 0
    pixels = 1
    for axis in axes:
        if facts.strides[axis] != pitch * pixels:
            return 0
        pixels *= facts.shape[axis]
    is_aligned = pitch * ELEMENT_BYTES.get(facts.dtype, 1) % PITCH_BYTES == 0
    return pitch if pitch > facts.shape[1] and is_aligned else 0
