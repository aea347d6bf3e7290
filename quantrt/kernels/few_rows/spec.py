# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T) of few rows on compute capability 9.0, as gemm_hopper has it.

With few rows a product is latency: the launch, the first loads, the last stores. So the weights of a tile's
first blocks, often all of them, are asked for before what makes x is done.
"""

from __future__ import annotations

from quantrt.kernels.descriptor import DescriptorType
from quantrt.kernels.epilogue.spec import (
    ELEMENT_BYTES,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
)
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.gemm import spec as gemm
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_hopper import spec as hopper
from quantrt.kernels.gemm_hopper.spec import ELEMENTS, HopperTile
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["kernel_of", "stage_bytes", "steps_of"]

WARPS = 4
BLOCK_K_BYTES = 128
"""Of a row in one stage: the widest swizzle."""


def steps_of(problem: GemmProblem) -> int:
    """Blocks of K."""
    return -(-problem.K * ELEMENT_BYTES[problem.dtype] // BLOCK_K_BYTES)


def stage_bytes(tile: HopperTile) -> int:
    """Of one block of x and one of w."""
    return (tile.block_m + tile.block_n) * BLOCK_K_BYTES


def kernel_of(problem: GemmProblem, tile: HopperTile) -> KernelSpec:
    """The kernel for a problem that gemm_hopper's `why_not` has nothing against. M does not enter it."""
    element, block_k = ELEMENTS[problem.dtype], BLOCK_K_BYTES // ELEMENT_BYTES[problem.dtype]
    pointers = {**output_types(problem), **operand_types(problem)}
    fixed = {
        "N": problem.N,
        "K": problem.K,
        "GATED": problem.is_gated,
        **epilogue_constants(problem),
        "KINDS": gemm.kinds_of(problem),
        **pitch_constants(problem, problem.pitches),
        "RUN": hopper.run_of(problem, tile),
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": block_k,
        "STAGES": tile.stages,
        "GROUP_M": tile.group_m,
    }
    return KernelSpec(
        family="few_rows",
        function="few_rows",
        signature=(
            ("x_desc", str(DescriptorType(element, (tile.block_m, block_k), BLOCK_K_BYTES))),
            ("w_desc", str(DescriptorType(element, (tile.block_n, block_k), BLOCK_K_BYTES))),
            *pointers.items(),
            ("M", "i32"),
        ),
        aligned=pointers_of(pointers),
        constants=tuple(fixed.items()),
        num_warps=WARPS,
        num_stages=tile.stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )
