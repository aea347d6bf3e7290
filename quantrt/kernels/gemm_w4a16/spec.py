# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T), w in 4 bits: what the kernel can do, and how its weight lies.

The layout in memory is made for blocks of `block_k` inputs: 16 bits hold the codes of inputs j, j + b/4,
j + b/2 and j + 3b/4 of a block of b, the first in the lowest digit, and the words of one block lie side by
side for all columns: [blocks, columns, b / 4]. Scales and zero points lie side by side for all columns
of a group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import POINTERS, epilogue_constants, operand_types, output_types
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.gemm.spec import GemmProblem, kinds_of
from quantrt.kernels.gemm.spec import why_not as why_no_product
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.kernels.split_k.spec import SplitConfig
from quantrt.regions.expression import IDENTITY

__all__ = ["DIGITS", "GroupedProblem", "by_group", "kernel_of", "packed", "why_not"]

Array = np.ndarray[Any, Any]

DIGITS = 4
"""Codes in 16 bits."""

BITS = 4
MAX_GROUPS = 4
"""In a block: each digit has one scale."""

MIN_DEPTH = 16
"""Of one product of the tensor cores on halves."""


@dataclass(frozen=True)
class GroupedProblem(GemmProblem):
    """One product with its epilogue.

    Attributes:
        group_size: inputs that share a scale.
        has_zeros: groups have zero points of their own; otherwise it is 8 in all.
    """

    group_size: int = 64
    has_zeros: bool = False


def why_not(problem: GroupedProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    if problem.dtype != "float16":
        return f"weights in 4 bits are multiplied with float16, not {problem.dtype}"
    return why_no_product(problem, device)


def kernel_of(problem: GroupedProblem, config: SplitConfig) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against; in parts the one that makes the parts."""
    tile = config.tile
    if config.splits > 1:
        problem = replace(problem, epilogue=IDENTITY, tensors=(), outputs=("float32",))
    types = {"x_ptr": POINTERS[problem.dtype], "w_ptr": "*i16", "scale_ptr": POINTERS["float32"]}
    zeros = {"zero_ptr": POINTERS[problem.dtype]} if problem.has_zeros else {}
    types |= {**zeros, **output_types(problem), **operand_types(problem)}
    fixed = {
        **({} if problem.has_zeros else {"zero_ptr": 0}),
        "STRIDE_UNIT": problem.stride_unit,
        "N": problem.N,
        "K": problem.K,
        "GROUP": problem.group_size,
        "HAS_ZEROS": problem.has_zeros,
        "GATED": problem.is_gated,
        **epilogue_constants(problem),
        "KINDS": kinds_of(problem),
        "SPLITS": config.splits,
        "STAGES": tile.num_stages,
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": tile.block_k,
        "GROUP_M": 8,
    }
    return KernelSpec(
        family="gemm_w4a16",
        function="gemm_w4a16",
        signature=(*types.items(), ("M", "i32"), ("stride_xm", "i32")),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )


def packed(codes: Array, block_k: int) -> Array:
    """Codes uint8 [columns, K] as the kernel reads them: int16 [blocks, columns, block_k / 4]."""
    columns, K = codes.shape
    blocks = -(-K // block_k)
    whole = np.zeros((columns, blocks * block_k), np.uint16)
    whole[:, :K] = codes
    digits = whole.reshape(columns, blocks, DIGITS, block_k // DIGITS)
    words = np.zeros((columns, blocks, block_k // DIGITS), np.uint16)
    for place in range(DIGITS):
        words |= digits[:, :, place] << (BITS * place)
    return np.ascontiguousarray(words.swapaxes(0, 1)).view(np.int16)


def by_group(values: Array, block_k: int, group_size: int, dtype: str) -> Array:
    """Scales or zero points [columns, groups] with columns side by side, to the end of the last block."""
    columns, groups = values.shape
    of_block = block_k // group_size
    whole = np.zeros((-(-groups // of_block) * of_block, columns), dtype)
    whole[:groups] = values.T
    return whole
