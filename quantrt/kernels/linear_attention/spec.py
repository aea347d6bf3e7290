# SPDX-License-Identifier: Apache-2.0
"""ReLU linear attention: what the kernel can do, and in which tiles.

One program computes one head of one image: all sums stay in registers, in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import POINTERS
from quantrt.kernels.kernel import KernelSpec

__all__ = ["LinearProblem", "TileConfig", "configs", "is_dense", "kernel_of", "why_not"]

FLOATS = ("float16", "bfloat16", "float32")
UNIT = 16
"""Of addresses in bytes, and of strides in elements, that are aligned."""

MAX_HEAD = 64
"""Of a head's size: with more, the sums of one head do not fit the registers of a program."""

LEAST_BLOCK = 16
"""Of a product's axis in Triton."""

TILES = ((64, 4), (32, 4), (32, 2), (64, 2))
MAX_HEAD_OF_TWO_WARPS = 16
"""Tokens at a time and warps; larger heads spill in two, and so do more tokens, compiled for 9.0."""


@dataclass(frozen=True)
class LinearProblem:
    """One linear attention.

    Attributes:
        D, E: elements of a head of q and k, and of v and the result.
        dtypes: of q, k, v and the result.
        epsilon: in the divisor.
    """

    D: int
    E: int
    dtypes: tuple[str, str, str, str]
    epsilon: float


@dataclass(frozen=True)
class TileConfig:
    """Tokens that a program takes at a time."""

    tokens: int
    num_warps: int

    @property
    def name(self) -> str:
        """As tactics are named: "64 w4"."""
        return f"{self.tokens} w{self.num_warps}"


def why_not(problem: LinearProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reasons = (
        (any(dtype not in FLOATS for dtype in problem.dtypes), f"no kernel for {', '.join(problem.dtypes)}"),
        (
            device.capability < 80,
            f"Triton compiles no tensor-core products for compute capability {device.capability}: "
            "80 is the least",
        ),
        (
            not 1 <= min(problem.D, problem.E) <= max(problem.D, problem.E) <= MAX_HEAD,
            f"heads of {problem.D} and {problem.E}: at most {MAX_HEAD}",
        ),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def configs(problem: LinearProblem) -> tuple[TileConfig, ...]:
    """Tiles worth timing, the likely fastest first."""
    is_large = max(problem.D, problem.E) > MAX_HEAD_OF_TWO_WARPS
    return tuple(TileConfig(tokens, warps) for tokens, warps in TILES if warps > 2 or not is_large)


def is_dense(address: int, strides: Sequence[int]) -> bool:
    """Whether the elements of every head of a tensor are neighbours in memory, from whole units on."""
    return strides[-1] == 1 and not any(number % UNIT for number in (address, *strides[:-1]))


def kernel_of(problem: LinearProblem, tile: TileConfig, *, is_dense: bool) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. Tokens and heads do not enter it.

    Args:
        is_dense: for tensors that all are; else for any.
    """
    pointers = [f"{x}_ptr" for x in "qkvy"]
    outer = [f"stride_{x}{axis}" for x in "qkvy" for axis in "bhs"]
    axes = [f"stride_{x}{axis}" for x in "qkvy" for axis in "bhsd"]
    return KernelSpec(
        family="linear_attention",
        function="linear_attention",
        signature=(
            *((name, POINTERS[dtype]) for name, dtype in zip(pointers, problem.dtypes, strict=True)),
            *((name, "i32") for name in ("H", "S", "T", *axes)),
        ),
        aligned=frozenset([*pointers, *outer] if is_dense else []),
        constants=(
            ("D", problem.D),
            ("E", problem.E),
            ("EPSILON", problem.epsilon),
            ("IS_DENSE", is_dense),
            ("BLOCK_S", tile.tokens),
            ("BLOCK_D", _block(problem.D)),
            ("BLOCK_E", _block(problem.E)),
        ),
        num_warps=tile.num_warps,
        num_stages=2,
        is_exact=False,
    )


def _block(size: int) -> int:
    return max(LEAST_BLOCK, 1 << (size - 1).bit_length())
