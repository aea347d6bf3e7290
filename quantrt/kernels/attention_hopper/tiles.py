# SPDX-License-Identifier: Apache-2.0
"""Which forms and tiles of the kernel for compute capability 9.0 are worth timing."""

from __future__ import annotations

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_hopper.spec import QUERIES, HopperAttention, shared_bytes
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES

__all__ = ["coded_forms", "float_forms"]

OTHER_SHARED_BYTES = 4096
"""Of barriers, ones, the mask and the runtime, beside queries, the ring and results."""

STORED_COLUMNS = 64
"""Of results that threads hand to each other at once, to store them in rows; codes of values need not."""

LEAST_TILES_RATIO = 0.5
"""Tiles for a multiprocessor: with fewer, most have nothing to do."""

LEAST_CODED_KEYS = 512
"""With fewer, making codes takes longer than they save: 77 and 384 keys were slower on an H200 than with
floats, 1,024 a little faster in heads of 64 (docs/results/cuda-attention8-h200.md)."""

CODED = (
    HopperAttention("int8", "fp8", 128, 4, lines=2),
    HopperAttention("int8", "fp8", 128, 4, lines=2, turns=True),
    HopperAttention("floats", "fp8", 128, 3, lines=2),
    HopperAttention("int8", "fp8", 128, 4, lines=1),
    HopperAttention("int8", "floats", 128, 3),
)
FLOATS = (HopperAttention("floats", "floats", 128, 3), HopperAttention("floats", "floats", 64, 4))
"""Those that were the fastest on an H200 at one length or another, in heads of 64 or of 128."""


def coded_forms(problem: AttentionProblem, device: GpuFacts) -> tuple[HopperAttention, ...]:
    """With codes, the most promising first; none with a mask, or for few keys."""
    is_worth_it = problem.mask == "none" and problem.T >= LEAST_CODED_KEYS
    return _fitting(CODED, problem, device) if is_worth_it else ()


def float_forms(problem: AttentionProblem, device: GpuFacts) -> tuple[HopperAttention, ...]:
    """Without codes, the most promising first."""
    return _fitting(FLOATS, problem, device)


def _fitting(
    forms: tuple[HopperAttention, ...], problem: AttentionProblem, device: GpuFacts
) -> tuple[HopperAttention, ...]:
    return tuple(
        how
        for how in forms
        if shared_bytes(problem, how) + _stored_bytes(problem, how) + OTHER_SHARED_BYTES
        <= device.shared_memory_bytes
        and _tiles(problem) >= LEAST_TILES_RATIO * device.multiprocessors
    )


def _tiles(problem: AttentionProblem) -> int:
    return problem.B * problem.H * -(-problem.S // QUERIES)


def _stored_bytes(problem: AttentionProblem, how: HopperAttention) -> int:
    widest = max(ELEMENT_BYTES[dtype] for dtype in problem.outputs)
    return QUERIES * STORED_COLUMNS * widest if how.values == "floats" else 0
