# SPDX-License-Identifier: Apache-2.0
"""y[images, top + H + bottom, left + W + right, C] = x[images, H, W, C] inside, a code on the borders.

A convolution of y has no padding, so that its copies may run ahead of its products, by our kernels and by
cuDNN's. The copy is of a byte for every code, where the products of a layer are a hundred or more.
"""

from __future__ import annotations

from dataclasses import replace

from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.epilogue.spec import POINTERS
from quantrt.kernels.kernel import KernelSpec

__all__ = ["BLOCK", "bordered_bytes", "inner_problem", "kernel_of"]

BLOCK = 4096
"""Elements of one program: 16 bytes of every thread at a time, twice."""

MAX_BLOCK_C = 256
FEW_CHANNELS = 4
"""Elements of so few are copied one by one anyway: see kernels/thin_conv2d."""

NO_PADS = (0, 0, 0, 0)


def inner_problem(problem: ConvProblem) -> ConvProblem | None:
    """The convolution of x with its borders; None where there is no need or no way."""
    is_padded = problem.pad_code != 0 and any(problem.pads)
    if not is_padded or min(problem.pads) < 0 or problem.C <= FEW_CHANNELS:
        return None
    top, left, bottom, right = problem.pads
    H, W = top + problem.H + bottom, left + problem.W + right
    return replace(problem, H=H, W=W, pads=NO_PADS, pad_code=0, x_pitch=0)


def bordered_bytes(problem: ConvProblem) -> int:
    """Of y, where x are int8 codes."""
    inner = inner_problem(problem)
    return 0 if inner is None else inner.images * inner.H * inner.W * inner.C


def kernel_of(problem: ConvProblem) -> KernelSpec:
    """The kernel that copies x, channels last. Images, H and W do not enter it."""
    pointer = POINTERS[problem.dtype]
    block_c = min(MAX_BLOCK_C, 1 << (problem.C - 1).bit_length())
    top, left, bottom, right = problem.pads
    fixed = {
        "C": problem.C,
        "TOP": top,
        "LEFT": left,
        "BOTTOM": bottom,
        "RIGHT": right,
        "PAD_CODE": problem.pad_code,
        "BLOCK_M": BLOCK // block_c,
        "BLOCK_C": block_c,
    }
    return KernelSpec(
        family="borders",
        function="add_borders",
        signature=(("x_ptr", pointer), ("y_ptr", pointer), *((name, "i32") for name in ("M", "H", "W"))),
        aligned=frozenset({"x_ptr", "y_ptr"}),
        constants=tuple(fixed.items()),
        num_warps=4,
        num_stages=1,
        is_exact=True,
    )
