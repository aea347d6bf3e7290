# SPDX-License-Identifier: Apache-2.0
"""y[images, h R + r, w S + s, C] = epilogue(x[images, h, w, C]): nearest pixels at whole factors R and S.

Codes are moved as they are; the epilogue reads what was moved as float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.epilogue.spec import (
    ELEMENT_BYTES,
    POINTERS,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
    why_not_epilogue,
)
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.kernels.pixel_tile import PixelTile
from quantrt.kernels.pool import spec as pool
from quantrt.kernels.pool import tiles as pool_tiles
from quantrt.regions.expression import Expression

__all__ = ["ResizeProblem", "configs", "kernel_of", "why_not"]

MAX_OFFSET = 2**31 - 1
MAX_BLOCK = 512


@dataclass(frozen=True)
class ResizeProblem:
    """One such resize with its epilogue; a 1-D one has H = R = 1.

    Attributes:
        images, H, W: of x.
        C: channels.
        R, S: how often every line and every column is repeated.
        dtype: of x.
        tensors, outputs: element types of the epilogue's tensor operands and results.
        x_pitch, pitches: as of a ConvProblem.
    """

    images: int
    H: int
    W: int
    C: int
    R: int
    S: int
    dtype: str
    epilogue: Expression
    tensors: tuple[str, ...]
    outputs: tuple[str, ...]
    x_pitch: int = 0
    pitches: tuple[int, ...] = ()


def why_not(problem: ResizeProblem) -> str | None:
    """Why the kernel cannot compute the problem, in one phrase; None when it can."""
    reasons = (
        (problem.dtype not in POINTERS, f"no resize of {problem.dtype}"),
        (min(problem.C, problem.R, problem.S) < 1, "nothing to repeat"),
        (max(problem.C, *problem.pitches, 0) * MAX_BLOCK > MAX_OFFSET, "offsets in a tile beyond 32 bits"),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or why_not_epilogue(problem)


def configs(problem: ResizeProblem, device: GpuFacts) -> tuple[PixelTile, ...]:
    """Tiles of the result, the most promising first: it is as a pool of one pixel for each."""
    window = ConvProblem(
        images=problem.images,
        H=problem.H * problem.R,
        W=problem.W * problem.S,
        C=problem.C,
        N=problem.C,
        R=1,
        S=1,
        strides=(1, 1),
        pads=(0, 0, 0, 0),
        dilations=(1, 1),
        dtype="int8" if ELEMENT_BYTES[problem.dtype] == 1 else problem.dtype,  # moved, whatever they mean
        epilogue=problem.epilogue,
        tensors=problem.tensors,
        outputs=problem.outputs,
    )
    return pool_tiles.configs(pool.PoolProblem(window, "max"), device)


def kernel_of(problem: ResizeProblem, config: PixelTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Images, H and W do not enter it."""
    types = {
        "x_ptr": POINTERS[problem.dtype],
        **output_types(problem),
        **operand_types(problem),
        **dict.fromkeys(("M", "P", "Q"), "i32"),
    }
    fixed = {
        "C": problem.C,
        "R": problem.R,
        "S": problem.S,
        **epilogue_constants(problem),
        "X_PITCH": problem.x_pitch or problem.C,
        **pitch_constants(problem, problem.pitches),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
    }
    return KernelSpec(
        family="resize",
        function="repeat_pixels",
        signature=tuple(types.items()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=1,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )
