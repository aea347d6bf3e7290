# SPDX-License-Identifier: Apache-2.0
"""y = max pool(epilogue(conv(x, w))) of folded pixels on compute capability 9.0: what the kernel can do.

The pool has windows of 3 by 3 in steps of 2 with a border of one pixel, as first layers of residual networks
have. An epilogue that never falls as its sum grows can follow the pool, code for code: every operation of it
rounds to the nearest, which never turns two numbers around.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.descriptor import DescriptorType
from quantrt.kernels.epilogue.spec import (
    ELEMENT_BYTES,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
)
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.fold_pixels.spec import Folding
from quantrt.kernels.gemm_hopper.spec import ELEMENTS, MAX_RUN
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.regions.expression import Expression

__all__ = [
    "BEFORE",
    "PAIRS",
    "RUN",
    "SEGMENTS",
    "PooledTile",
    "configs",
    "folded_bytes",
    "kernel_of",
    "never_falls",
    "segments_of",
    "why_not",
    "with_left",
]

CAPABILITY = 90
SEGMENTS, PAIRS = 4, 8
"""Of a program; of columns in a segment: a pooled pixel each but the first."""

BEFORE = 2
"""Folded pixels ahead of a line, for the first segment begins at column -2."""

RUN = MAX_RUN
CHANNELS = 4 * RUN
"""Of the output: what four threads have side by side."""

WARPS = 4
STAGES = (8, 12)
NEIGHBOURS = 3
"""Lines in the ring; programs of a multiprocessor, for which there are registers."""
MAX_CONFIGS = 4
MAX_BANDS = 16
OTHER_SHARED_BYTES = 1024

RISING = ("add", "sub", "mul", "div", "max", "min", "quantize", "quantize_at")


@dataclass(frozen=True)
class PooledTile:
    """How the work is cut: pooled lines of a program, lines of x in its ring."""

    lines: int
    stages: int

    @property
    def name(self) -> str:
        """As tactics are named: "pooled 14 lines s8"."""
        return f"pooled {self.lines} lines s{self.stages}"


def why_not(problem: ConvProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute a convolution and the pool behind it, in one phrase; None when it can."""
    _, P, Q = problem.output
    reasons = (
        (device.capability != CAPABILITY, f"instructions of compute capability {CAPABILITY} alone"),
        (problem.dtype not in ("int8", "float16", "bfloat16"), f"no convolution of {problem.dtype}"),
        (problem.N != CHANNELS, f"{problem.N} channels: made for {CHANNELS}"),
        (P % 2 > 0 or Q % 2 > 0, "an odd number of lines or columns"),
        (bool(problem.tensors) or len(problem.outputs) != 1, "other tensors than x and y"),
        (problem.has_gaps, "channels with gaps between"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def never_falls(expression: Expression, constants: Mapping[str, np.ndarray]) -> bool:
    """Whether the one result of an epilogue never falls as its sum, operand 0, grows.

    Args:
        constants: by name, of its constant operands.
    """
    known: dict[int, tuple[float, float]] = {}
    for number, operand in enumerate(expression.operands):
        if operand.kind == "scalar":
            known[number] = (operand.value, operand.value)
        elif operand.kind == "constant":
            values = constants[operand.name]
            known[number] = (float(np.min(values)), float(np.max(values)))
        elif number:
            return False
    rising = {0}
    for number, step in enumerate(expression.instructions, len(expression.operands)):
        if step.op == "const":
            known[number] = (step.value, step.value)
            continue
        risers = [argument in rising for argument in step.args]
        if not any(risers):
            return False
        others = [known[argument] for argument in step.args if argument in known]
        is_scaled = step.op in ("mul", "div", "quantize", "quantize_at")
        if step.op not in RISING or len(others) != len(step.args) - 1:
            return False
        if (step.op in ("sub", "div", "quantize", "quantize_at") and not risers[0]) or (
            is_scaled and others[0][0] <= 0.0
        ):
            return False
        rising.add(number)
    return len(expression.outputs) == 1 and expression.outputs[0] in rising


def with_left(problem: ConvProblem, folding: Folding) -> ConvProblem:
    """The convolution with so wide a border that what is folded begins BEFORE pixels further left."""
    top, left, bottom, right = problem.pads
    return replace(problem, pads=(top, left + BEFORE * folding.step, bottom, right))


def folded_bytes(problem: ConvProblem, folding: Folding) -> int:
    """Of the folded pixels, and a line behind them."""
    images, _, Q = problem.output
    lines = images * folding.problem.H + 1
    pixels = lines * (BEFORE + Q + folding.taps - 1)
    return pixels * folding.width * ELEMENT_BYTES[problem.dtype]


def segments_of(columns: int) -> int:
    """How many segments a pooled line of so many pixels has."""
    return -(-columns // (PAIRS - 1))


def configs(problem: ConvProblem, folding: Folding, device: GpuFacts) -> tuple[PooledTile, ...]:
    """At most 4, the likely fastest first: in which the fewest lines are computed one after the other."""
    images, P, Q = problem.output
    parts, slots = -(-segments_of(Q // 2) // SEGMENTS), NEIGHBOURS * device.multiprocessors

    def lines_in_turn(lines: int) -> int:
        rounds = -(-images * parts * -(-P // (2 * lines)) // slots)
        return rounds * (2 * lines + 1)

    cuts = {-(-P // (2 * bands)) for bands in range(1, min(P // 2, MAX_BANDS) + 1)}
    best = sorted(cuts, key=lambda lines: (lines_in_turn(lines), -lines))[: MAX_CONFIGS // len(STAGES)]
    row_bytes = folding.problem.C * ELEMENT_BYTES[problem.dtype]
    fixed_bytes = problem.N * folding.problem.R * row_bytes + OTHER_SHARED_BYTES
    line_bytes = 2 * SEGMENTS * PAIRS * row_bytes
    most = (device.shared_memory_bytes - fixed_bytes) // line_bytes
    return tuple(PooledTile(lines, stages) for lines in best for stages in STAGES if stages <= most)


def kernel_of(problem: ConvProblem, folding: Folding, tile: PooledTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Sizes of images do not enter it."""
    element, C = ELEMENTS[problem.dtype], folding.problem.C
    row_bytes = C * ELEMENT_BYTES[problem.dtype]
    pointers = {**output_types(problem), **operand_types(problem)}
    fixed = {
        "N": problem.N,
        "R": folding.problem.R,
        "C": C,
        **epilogue_constants(problem),
        **pitch_constants(problem, ()),
        "RUN": RUN,
        "LINES": tile.lines,
        "STAGES": tile.stages,
    }
    return KernelSpec(
        family="pooled_conv",
        function="pooled_conv",
        signature=(
            ("x_desc", str(DescriptorType(element, (1, SEGMENTS, 2, PAIRS, C), row_bytes))),
            ("w_desc", str(DescriptorType(element, (problem.N, C), row_bytes))),
            *pointers.items(),
            *((name, "i32") for name in ("P", "Q", "U")),
        ),
        aligned=pointers_of(pointers),
        constants=tuple(fixed.items()),
        num_warps=WARPS,
        num_stages=tile.stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )
