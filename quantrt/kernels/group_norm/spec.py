# SPDX-License-Identifier: Apache-2.0
"""y[images, HW, C] = epilogue((x + shift - mean) * rstd), mean and rstd of every image and group of channels.

Two ways, both without atomics, so that the same input gives the same bits:

whole groups    one program reads a group of one image twice
parts           1. mean and sum of squares around it, of every channel of a part of the pixels
                2. of every group, from its channels' parts
                3. the epilogue, tile by tile

Sums are of differences to the mean of a first tile, in float32: a mean that is large beside the deviation
costs no digits (Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quantrt.kernels.epilogue.spec import (
    POINTERS,
    WARP,
    epilogue_constants,
    operand_types,
    output_types,
    why_not_epilogue,
)
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.regions.expression import Expression

__all__ = [
    "IMAGE",
    "GroupNormProblem",
    "TileConfig",
    "block_of",
    "kernels_of",
    "part_rows",
    "sum_rows",
    "why_not",
]

FLOATS = ("float16", "bfloat16", "float32")
MAX_OFFSET = 2**31 - 1
MAX_GROUP = 4096
"""Channels of a group that one tile holds."""

MERGED_ELEMENTS = 2048
"""Means that one program of the second step holds at a time."""

SUM_ELEMENTS = 8
"""Of a thread in a tile of the first step: 16 bytes of halves, and as few sums."""

SUM_TILES = 8
"""Of the first step, that are on their way at a time: memory answers after a microsecond."""

LAST_TILES = 4
"""That a program of the last step stores: what it reads and computes for channels serves them all."""

IMAGE = "image"
"""Kind of a tensor operand with one element for every channel of an image; "tensor" has all pixels."""


@dataclass(frozen=True)
class GroupNormProblem:
    """One norm with its epilogue.

    Attributes:
        tensors, outputs: element types of the tensor operands and of what is stored.
        per_image: of every tensor operand, whether it has one element for each channel of an image.
        shift: element type of what is added to x, one element for each channel of an image; empty without.
            Images may lie any distance from each other: it can be a part of a wider matrix.
    """

    images: int
    HW: int
    C: int
    groups: int
    dtype: str
    epilogue: Expression
    tensors: tuple[str, ...]
    outputs: tuple[str, ...]
    per_image: tuple[bool, ...] = ()
    shift: str = ""

    @property
    def depth(self) -> int:
        """Channels of a group."""
        return self.C // self.groups


@dataclass(frozen=True)
class TileConfig:
    """How the work is cut.

    Attributes:
        block_m, block_n: pixels and channels of one tile.
        is_whole: one program for a group; otherwise parts.
    """

    block_m: int
    block_n: int
    num_warps: int
    is_whole: bool

    @property
    def name(self) -> str:
        """As tactics are named: "parts 64x64 w4"."""
        kind = "whole" if self.is_whole else "parts"
        return f"{kind} {self.block_m}x{self.block_n} w{self.num_warps}"

    @property
    def elements(self) -> int:
        """Of one thread."""
        return self.block_m * self.block_n // (WARP * self.num_warps)


def why_not(problem: GroupNormProblem) -> str | None:
    """Why the kernels cannot compute the problem, in one phrase; None when they can."""
    reasons = (
        (problem.dtype not in FLOATS, f"no norm of {problem.dtype}"),
        (bool(problem.shift) and problem.shift not in FLOATS, f"a shift of {problem.shift}"),
        (problem.C < 1 or problem.groups < 1, "no channels"),
        (problem.groups > 0 and problem.C % problem.groups != 0, f"{problem.C} channels in {problem.groups}"),
        (
            problem.groups > 0 and problem.depth > MAX_GROUP,
            f"groups of {problem.depth} channels: at most {MAX_GROUP}",
        ),
        (problem.C * MERGED_ELEMENTS > MAX_OFFSET, "offsets in a tile beyond 32 bits"),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or why_not_epilogue(problem)


def kernels_of(problem: GroupNormProblem, config: TileConfig) -> tuple[KernelSpec, ...]:
    """The kernel over whole groups, or the three over parts. Images and pixels do not enter them."""
    if config.is_whole:
        return (_epilogue_kernel(problem, config, "whole_groups", {"D": problem.depth}),)
    return (
        _sums(problem, config),
        _merge(problem),
        _epilogue_kernel(problem, config, "normalize", {"TILES": LAST_TILES}),
    )


def sum_rows(config: TileConfig) -> int:
    """Pixels of a tile of the first of three kernels: a thread sums SUM_ELEMENTS of it."""
    return max(1, SUM_ELEMENTS * WARP * config.num_warps // config.block_n)


def part_rows(pixels: int, parts: int, block_m: int) -> int:
    """Pixels of one part, a multiple of the tile's, when there are to be about so many parts."""
    return -(-max(pixels, 1) // (max(parts, 1) * block_m)) * block_m


def block_of(channels: int) -> int:
    """The tile's channels that hold those of a group."""
    return 1 << (channels - 1).bit_length()


def _epilogue_kernel(
    problem: GroupNormProblem, config: TileConfig, function: str, more: dict[str, Any]
) -> KernelSpec:
    """Arguments: x, outputs, operands, shift, then the statistics or epsilon, then sizes."""
    is_whole = function == "whole_groups"
    types = {
        "x_ptr": POINTERS[problem.dtype],
        **output_types(problem),
        **operand_types(problem),
        **_shift_type(problem),
        **({"epsilon": "fp32"} if is_whole else {"stats_ptr": "*fp32"}),
        "HW": "i32",
    }
    fixed = {
        **epilogue_constants(problem),
        "KINDS": _kinds(problem),
        **_shift_constants(problem),
        "C": problem.C,
        **more,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
    }
    return _spec(function, types, fixed, config.num_warps)


def _sums(problem: GroupNormProblem, config: TileConfig) -> KernelSpec:
    types = {
        "x_ptr": POINTERS[problem.dtype],
        **_shift_type(problem),
        "parts_ptr": "*fp32",
        "HW": "i32",
        "ROWS": "i32",
        "PARTS": "i32",
    }
    fixed = {
        **_shift_constants(problem),
        "C": problem.C,
        "TILES": SUM_TILES,
        "BLOCK_M": sum_rows(config),
        "BLOCK_N": config.block_n,
    }
    return _spec("sum_parts", types, fixed, config.num_warps)


def _merge(problem: GroupNormProblem) -> KernelSpec:
    block_d = block_of(problem.depth)
    types = {
        "parts_ptr": "*fp32",
        "stats_ptr": "*fp32",
        "epsilon": "fp32",
        "HW": "i32",
        "ROWS": "i32",
        "PARTS": "i32",
    }
    fixed = {
        "C": problem.C,
        "D": problem.depth,
        "BLOCK_K": max(1, MERGED_ELEMENTS // block_d),
        "BLOCK_D": block_d,
    }
    return _spec("merge_parts", types, fixed, num_warps=4)


def _spec(function: str, types: dict[str, str], fixed: dict[str, Any], num_warps: int) -> KernelSpec:
    return KernelSpec(
        family="group_norm",
        function=function,
        signature=tuple(types.items()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=num_warps,
        num_stages=1,
        is_exact=False,
    )


def _shift_type(problem: GroupNormProblem) -> dict[str, str]:
    return {"shift_ptr": POINTERS[problem.shift], "shift_stride": "i32"} if problem.shift else {}


def _shift_constants(problem: GroupNormProblem) -> dict[str, Any]:
    absent = {} if problem.shift else {"shift_ptr": 0, "shift_stride": 0}
    return {"HAS_SHIFT": bool(problem.shift), **absent}


def _kinds(problem: GroupNormProblem) -> tuple[str, ...]:
    """Of every operand behind the accumulator, with those of one element per channel of an image apart."""
    per_image = iter(problem.per_image or (False,) * len(problem.tensors))
    kinds = (x.kind for x in problem.epilogue.operands if x.kind != "accumulator")
    return tuple(IMAGE if kind == "tensor" and next(per_image) else kind for kind in kinds)
