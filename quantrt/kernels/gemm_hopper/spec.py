# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T) on compute capability 9.0: what the kernel can do, in which tiles.

w is kept with its rows in the order in which the tensor cores hand out columns, so that every thread has
16 bytes of one row of y side by side: it stores them as they are, without a detour through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.descriptor import DescriptorType
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, epilogue_constants, operand_types, output_types
from quantrt.kernels.expression.spec import needs_exact
from quantrt.kernels.gemm import spec as gemm
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.kernel import KernelSpec

__all__ = ["STAGE_BYTES_K", "HopperTile", "kernel_of", "rows_in_order", "run_of", "why_not"]

CAPABILITY = 90

STAGE_BYTES_K = 128
"""Of a row in one stage: the widest swizzle."""

WARPS = 12
"""Two consumers and the producer, whose other three warps sleep: registers belong to groups of four warps."""

TMA_BYTES = 16
"""Rows in memory begin at multiples of this; PTX ISA, tensor maps."""

MAX_RUN = 16
VECTOR_BYTES = 16
"""What one thread stores at once."""

_ELEMENTS = {"int8": "i8", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class HopperTile:
    """How the product is cut.

    Attributes:
        block_m, block_n: tile of one consumer, multiples of 64.
        stages: of the ring in shared memory.
        group_m: rows of tiles that programs walk down before the next column, so that they share w in L2.
    """

    block_m: int
    block_n: int
    stages: int
    group_m: int = 8

    @property
    def name(self) -> str:
        """As tactics are named: "hopper 128x128 s6"."""
        return f"hopper {self.block_m}x{self.block_n} s{self.stages}"

    @property
    def shared_bytes(self) -> int:
        """Of the ring."""
        return self.stages * (self.block_m + self.block_n) * STAGE_BYTES_K


def why_not(problem: GemmProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    size = ELEMENT_BYTES.get(problem.dtype, 1)
    reasons = (
        (device.capability != CAPABILITY, f"instructions of compute capability {CAPABILITY} alone"),
        (problem.dtype not in _ELEMENTS, f"no product of {problem.dtype}"),
        (problem.is_gated, "a gate"),
        (
            problem.K * size % TMA_BYTES > 0 or problem.stride_unit * size % TMA_BYTES > 0,
            f"rows that do not begin at multiples of {TMA_BYTES} bytes",
        ),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or gemm.why_not(problem, device)


def kernel_of(problem: GemmProblem, tile: HopperTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. M does not enter it."""
    element = _ELEMENTS[problem.dtype]
    block_k = STAGE_BYTES_K // ELEMENT_BYTES[problem.dtype]
    pointers = {**output_types(problem), **operand_types(problem)}
    fixed = {
        "N": problem.N,
        "K": problem.K,
        **epilogue_constants(problem),
        "RUN": run_of(problem),
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": block_k,
        "STAGES": tile.stages,
        "GROUP_M": tile.group_m,
    }
    return KernelSpec(
        family="gemm_hopper",
        function="gemm_hopper",
        signature=(
            ("x_desc", str(DescriptorType(element, (tile.block_m, block_k), STAGE_BYTES_K))),
            ("w_desc", str(DescriptorType(element, (tile.block_n, block_k), STAGE_BYTES_K))),
            *pointers.items(),
            ("M", "i32"),
        ),
        aligned=frozenset(name for name, kind in pointers.items() if kind.startswith("*")),
        constants=tuple(fixed.items()),
        num_warps=WARPS,
        num_stages=tile.stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )


def run_of(problem: GemmProblem) -> int:
    """Columns of y that one thread has side by side: a vector of its widest output."""
    widest = max((ELEMENT_BYTES[dtype] for dtype in (*problem.outputs, *problem.tensors)), default=1)
    return min(MAX_RUN, max(VECTOR_BYTES // widest, 4))


def rows_in_order(w: np.ndarray, run: int) -> np.ndarray:
    """w[N, K] with its rows where the tensor cores want them, and rows of zeros up to a whole group.

    Of a group of 4 * run columns, thread t of 4 holds 8 j + 2 t and 8 j + 2 t + 1 for every j (PTX ISA,
    wgmma, fragment of matrix D); here it is to hold run t + 2 j and the next.
    """
    group = 4 * run
    N, K = w.shape
    padded = np.zeros((-(-N // group) * group, K), w.dtype)
    padded[:N] = w
    return padded.reshape(-1, 4, run // 2, 2, K).swapaxes(1, 2).reshape(-1, K)
