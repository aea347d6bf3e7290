# SPDX-License-Identifier: Apache-2.0
"""A first layer with strides as a convolution without: squares of pixels are folded into channels.

    f[image, u, v, (b, d, c)] = x[image, s u + b - top, s v + d - left, c]    b, d < s, zeros up to 16 bytes

A window of R by S pixels in steps of s is one of ceil(R / s) by ceil(S / s) folded pixels in steps of 1, some
of its weights zeros. Folded pixels of a line follow each other in memory, so those of a window's line are one
row of channels, and rows of neighbouring windows overlap: what is left is a convolution of windows that are
ceil(R / s) high and 1 wide, as kernels/conv_hopper copies them, of pixels nearer to each other than they have
channels. With s = 1 pixels get no more than their 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.conv_hopper.spec import STEP_BYTES
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, POINTERS
from quantrt.kernels.expression.spec import program_of
from quantrt.kernels.kernel import KernelSpec
from quantrt.regions.expression import Expression, Operand

__all__ = ["Folding", "folding_of", "kernel_of", "why_not_before"]

WIDTH_BYTES = 16
"""Folded pixels begin at multiples of it: PTX ISA, tensor maps."""

MAX_CHANNELS = 4
BLOCK = 256
"""Channels of x at most; folded pixels of one program."""

NO_PADS = (0, 0, 0, 0)

MAX_ARGS = 4
IDENTITY = Expression((Operand("tensor"),), (), (0,), (False,))
"""Numbers of an expression that pixels go through at most; what does nothing to them."""


@dataclass(frozen=True)
class Folding:
    """How a convolution is folded.

    Attributes:
        step: pixels of x to a side of a folded one.
        width: elements of a folded pixel, zeros among them.
        taps: folded pixels of a window's line, a power of two.
        problem: the convolution of what is folded: x_pitch is `width`.
    """

    step: int
    width: int
    taps: int
    problem: ConvProblem

    @property
    def size_bytes(self) -> int:
        """Of the folded pixels."""
        folded = self.problem
        pixels = folded.images * folded.H * (folded.W + self.taps - 1)
        return pixels * self.width * ELEMENT_BYTES[folded.dtype]

    def weight_of(self, weight: np.ndarray) -> np.ndarray:
        """w[N, C, R, S] as [N, taps of a column, taps of a line * width], zeros where there is nothing."""
        N, C, R, S = weight.shape
        found = np.zeros((N, self.problem.R, self.taps, self.width), weight.dtype)
        for r in range(R):
            for s in range(S):
                first = (r % self.step * self.step + s % self.step) * C
                found[:, r // self.step, s // self.step, first : first + C] = weight[:, :, r, s]
        return found.reshape(N, self.problem.R, -1)


def folding_of(problem: ConvProblem) -> Folding | None:
    """How to fold a convolution; None where that is of no use or not possible."""
    step = problem.strides[0]
    is_plain = problem.strides == (step, step) and problem.dilations == (1, 1) and min(problem.pads) >= 0
    if not is_plain or problem.C > MAX_CHANNELS or problem.has_gaps or problem.R <= step:
        return None
    size = ELEMENT_BYTES[problem.dtype]
    width = -(-step * step * problem.C * size // WIDTH_BYTES) * WIDTH_BYTES // size
    taps = 1 << (-(-problem.S // step) - 1).bit_length()
    if taps * width * size not in STEP_BYTES:
        return None
    images, P, Q = problem.output
    lines = -(-problem.R // step)
    folded = replace(
        problem,
        H=P + lines - 1,
        W=Q,
        C=taps * width,
        R=lines,
        S=1,
        strides=(1, 1),
        pads=NO_PADS,
        pad_code=0,
        x_pitch=width,
    )
    return Folding(step, width, taps, folded)


def why_not_before(expression: Expression) -> str | None:
    """Why pixels cannot go through an expression when they are folded, in one phrase; None when they can."""
    operands = expression.operands
    reasons = (
        (expression.has_row or bool(expression.lookups), "more than elements by themselves"),
        (len(expression.outputs) != 1, f"{len(expression.outputs)} results"),
        (operands[0].kind != "tensor", "no tensor in front"),
        (any(operand.kind != "scalar" for operand in operands[1:]), "operands that are no numbers"),
        (len(operands) - 1 > MAX_ARGS, f"{len(operands) - 1} numbers: at most {MAX_ARGS}"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def kernel_of(
    problem: ConvProblem, folding: Folding, *, dtype: str | None = None, before: Expression | None = None
) -> KernelSpec:
    """The kernel that folds x [images, C, H, W] of any strides, with its borders.

    Args:
        dtype: of x, where it is not that of the convolution.
        before: what x goes through then; see `why_not_before`.
    """
    expression = before or IDENTITY
    numbers = len(expression.operands) - 1
    sizes = ("M", "U", "V", "H", "W", "stride_xn", "stride_xc", "stride_xh", "stride_xw")
    fixed = {
        **{f"arg{number}": 0 for number in range(numbers, MAX_ARGS)},
        "C": problem.C,
        "STEP": folding.step,
        "TAPS": folding.taps,
        "TOP": problem.pads[0],
        "LEFT": problem.pads[1],
        "PAD_CODE": problem.pad_code,
        "WIDTH": folding.width,
        "ARGUMENTS": numbers,
        "PROGRAM": program_of(expression, (problem.dtype,)),
        "OUTPUT": expression.outputs[0],
        "BLOCK": BLOCK,
    }
    return KernelSpec(
        family="fold_pixels",
        function="fold_pixels",
        signature=(
            ("x_ptr", POINTERS[dtype or problem.dtype]),
            ("y_ptr", POINTERS[problem.dtype]),
            *((f"arg{number}", "fp32") for number in range(numbers)),
            *((name, "i32") for name in sizes),
        ),
        aligned=frozenset({"y_ptr"}),
        constants=tuple(fixed.items()),
        num_warps=4,
        num_stages=1,
        is_exact=True,
    )
