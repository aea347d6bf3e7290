# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T) on compute capability 9.0: what the kernel can do, in which tiles.

w is kept with its rows in the order in which the tensor cores hand out columns, so that every thread has
up to 16 bytes of one row of y side by side: it stores them as they are, without a detour through shared
memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quantrt.dtypes import CODE_TYPES
from quantrt.gpu import GpuFacts
from quantrt.kernels.descriptor import DescriptorType
from quantrt.kernels.epilogue.spec import (
    ELEMENT_BYTES,
    WARP,
    epilogue_constants,
    operand_types,
    output_types,
    pitch_constants,
)
from quantrt.kernels.expression.spec import flops_of, needs_exact
from quantrt.kernels.gemm import spec as gemm
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.kernels.live_rows import ALL_ROWS

__all__ = [
    "ELEMENTS",
    "WARPS",
    "HopperTile",
    "fits_registers",
    "ahead_of",
    "kernel_of",
    "makes_codes_of_tensors",
    "rows_in_order",
    "run_of",
    "shared_bytes",
    "steps_of",
    "weight_run_of",
    "why_not",
]

CAPABILITY = 90

MAX_STAGE_K_BYTES = 128
MIN_STAGE_K_BYTES = 32
"""Of a row in one stage: the widest swizzle, and what one product takes."""

CONSUMER_WARPS = 4
WARPS = 12
"""Two consumers and the producer, whose other three warps sleep: registers belong to groups of four warps."""

REGISTERS = 240
SHARED_REGISTERS = 104
OTHER_REGISTERS = 48
OTHER_REGISTERS_WITH_TENSORS = 72
TENSOR_REGISTERS = 16
FREE_REGISTERS = 40
"""Of a consumer's thread, and of one that shares its multiprocessor with another program; what it needs
beside sums and operands, about; and what it may have of tensor operands that it will need later, in a tile of
its own and in one that it shares."""

PART_ROWS = 64
"""Of a part of a tile: what a consumer multiplies at once."""

TMA_BYTES = 16
"""Rows in memory begin at multiples of this; PTX ISA, tensor maps."""

MAX_RUN = 16
LARGE_RUN = 8
VECTOR_BYTES = 16
"""What one thread stores at once; with tensor operands and many sums, or few registers, fewer columns."""

MANY_SUMS = 128

SLICE_COLUMNS = 4 * MAX_RUN
"""Of bytes, two sectors of every row: with one the requests to L2 were what bounds 1x1 convolutions that add
a residual, and not its bytes (docs/decisions/0030-slices-of-two-sectors.md)."""

PROMOTED_BLOCKS = 4
"""Of FP8 whose sums are left to the tensor cores, 512 terms. Cut to 14 bits each time that 32 terms come in,
they are off by 0.034 % of the result's size however long it is; whole sums by 0.13 % at 4096, 0.2 % at 8192
terms, and by 3 % where a sum was large and comes back."""

ELEMENTS = {"int8": "i8", "float8_e4m3fn": "fp8e4nv", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class HopperTile:
    """How the product is cut.

    Attributes:
        block_m, block_n: tile of one consumer, multiples of 64.
        stages: of the ring in shared memory.
        group_m: rows of tiles that programs walk down before the next column, so that they share w in L2.
        is_looped: a loop finishes a tile, in less machine code.
        is_sliced: a loop multiplies and finishes slices of a tile, whose sums alone are in registers.
        neighbours: programs of a multiprocessor, of kernels/conv_hopper. Two have four consumers to finish
            tiles, where one has two, with less than half of the registers for each.
        is_shared: both consumers take every tile, half of its rows each: for programs of one tile.
        is_promoted: sums of FP8 are added up in float32, see kernels/jit/block_sums; of shared tiles.
    """

    block_m: int
    block_n: int
    stages: int
    group_m: int = 8
    is_looped: bool = False
    neighbours: int = 1
    is_sliced: bool = False
    is_shared: bool = False
    is_promoted: bool = False

    @property
    def name(self) -> str:
        """As tactics are named: "hopper 128x128 s6", "hopper 128x128 s6 looped", "hopper 64x64 s6 x2"."""
        name = f"hopper {self.block_m}x{self.block_n} s{self.stages}"
        name += f" x{self.neighbours}" * (self.neighbours > 1)
        name += " looped" * self.is_looped + " sliced" * self.is_sliced + " shared" * self.is_shared
        return name + " promoted" * self.is_promoted

    @property
    def columns(self) -> tuple[int, int]:
        """Of the sums of a consumer, powers of two: as many as may be, and the rest."""
        main = 1 << self.block_n.bit_length() - 1
        return main, self.block_n - main

    @property
    def rows(self) -> int:
        """Of one consumer."""
        return self.block_m // 2 if self.is_shared else self.block_m

    @property
    def sums(self) -> int:
        """Of one thread."""
        if self.is_sliced:
            return self.rows * SLICE_COLUMNS // (WARP * CONSUMER_WARPS)
        return self.rows * self.block_n // (WARP * CONSUMER_WARPS)


def fits_registers(problem: GemmProblem, tile: HopperTile) -> bool:
    """Whether a consumer has room for the sums of a tile beside what finishes them, part by part."""
    if problem.is_gated and tile.columns[1]:
        return False  # a part has the columns of both halves, more than are beside the power of two
    is_short = flops_of(problem.epilogue, problem.outputs) <= gemm.MAX_SHORT_FLOPS
    is_simple = len(problem.outputs) == 1 and not problem.is_gated and not makes_codes_of_tensors(problem)
    return tile.sums <= MANY_SUMS or (is_short and is_simple)


def makes_codes_of_tensors(problem: GemmProblem) -> bool:
    """Whether its epilogue is long: tensors are read, and what is stored is quantized."""
    return bool(problem.blocks) and any(row.name in problem.outputs for row in CODE_TYPES)


def shared_bytes(problem: GemmProblem, tile: HopperTile) -> int:
    """Of the ring; barriers come on top."""
    return tile.stages * (tile.block_m + tile.block_n) * _stage_k_bytes(problem)


def why_not(problem: GemmProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    size = ELEMENT_BYTES.get(problem.dtype, 1)
    reasons = (
        (device.capability != CAPABILITY, f"instructions of compute capability {CAPABILITY} alone"),
        (problem.dtype not in ELEMENTS, f"no product of {problem.dtype}"),
        (
            problem.K * size % TMA_BYTES > 0 or problem.stride_unit * size % TMA_BYTES > 0,
            f"rows that do not begin at multiples of {TMA_BYTES} bytes",
        ),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or gemm.why_not(problem, device)


def kernel_of(problem: GemmProblem, tile: HopperTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. M does not enter it."""
    element = ELEMENTS[problem.dtype]
    k_bytes = _stage_k_bytes(problem)
    block_k = k_bytes // ELEMENT_BYTES[problem.dtype]
    constants_ahead, tensors_ahead = ahead_of(problem, tile)
    pointers = {**output_types(problem), **operand_types(problem)}
    main, rest = tile.columns
    weights = {"w_desc": main} | ({"rest_desc": rest} if rest else {})
    fixed = {
        **ALL_ROWS,
        **({} if rest else {"rest_desc": 0}),
        "N": problem.N,
        "K": problem.K,
        "GATED": problem.is_gated,
        **epilogue_constants(problem),
        "KINDS": gemm.kinds_of(problem),
        **pitch_constants(problem, problem.pitches),
        "RUN": run_of(problem, tile),
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": block_k,
        "STAGES": tile.stages,
        "GROUP_M": tile.group_m,
        "CONSTANTS_AHEAD": constants_ahead,
        "TENSORS_AHEAD": tensors_ahead,
        "LOOPED": tile.is_looped,
        "SLICED": tile.is_sliced,
        "SHARED": tile.is_shared,
        "PROMOTED": PROMOTED_BLOCKS if tile.is_promoted else 0,
    }
    return KernelSpec(
        family="gemm_hopper",
        function="gemm_hopper",
        signature=(
            ("x_desc", str(DescriptorType(element, (tile.block_m, block_k), k_bytes))),
            *(
                (name, str(DescriptorType(element, (rows, block_k), k_bytes)))
                for name, rows in weights.items()
            ),
            *pointers.items(),
            ("M", "i32"),
        ),
        aligned=pointers_of(pointers),
        constants=tuple(fixed.items()),
        num_warps=WARPS,
        num_stages=tile.stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )


def run_of(problem: GemmProblem, tile: HopperTile) -> int:
    """Columns of y that one thread has side by side: a vector of its widest output, or less."""
    widest = max((ELEMENT_BYTES[dtype] for dtype in (*problem.outputs, *problem.blocks)), default=1)
    is_tight = (
        problem.is_gated
        or tile.sums > MANY_SUMS
        or ((tile.sums == MANY_SUMS or tile.neighbours > 1) and problem.blocks)
    )
    is_odd = tile.block_n % (4 * MAX_RUN) > 0
    return min(LARGE_RUN if is_tight or is_odd else MAX_RUN, max(VECTOR_BYTES // widest, 4))


def steps_of(problem: GemmProblem) -> int:
    """Blocks of K, one a stage."""
    return -(-problem.K * ELEMENT_BYTES[problem.dtype] // _stage_k_bytes(problem))


def weight_run_of(problem: GemmProblem, tile: HopperTile) -> int:
    """Rows of w for them: of a gate two for every column."""
    return run_of(problem, tile) * problem.columns // problem.N


def ahead_of(problem: GemmProblem, tile: HopperTile) -> tuple[int, int]:
    """For how many columns of parts constants are loaded before the product; for how many parts tensors."""
    if tile.is_looped:
        return 1, tile.rows // PART_ROWS
    if tile.sums > MANY_SUMS and problem.blocks:
        return 1, 1
    run = run_of(problem, tile)
    constants = sum(operand.kind == "constant" for operand in problem.epilogue.operands)
    other = OTHER_REGISTERS_WITH_TENSORS if problem.blocks else OTHER_REGISTERS
    left = (
        (REGISTERS if tile.neighbours == 1 else SHARED_REGISTERS) - tile.sums * (1 + tile.is_promoted) - other
    )
    of_tensors = sum(2 * run * ELEMENT_BYTES[dtype] for dtype in problem.blocks) // 4
    kept = FREE_REGISTERS if tile.is_shared else TENSOR_REGISTERS
    tensors_ahead = max(1, kept // of_tensors) if of_tensors else 0
    left -= tensors_ahead * of_tensors
    if problem.per_row:  # a number for each of a thread's rows, the same for all columns of a tile
        tensors_ahead = max(tensors_ahead, tile.block_m // PART_ROWS)
    return max(1, left // max(run * constants, 1)), tensors_ahead


def _stage_k_bytes(problem: GemmProblem) -> int:
    """Of a row in one stage: a power of two."""
    whole = 1 << (problem.K * ELEMENT_BYTES[problem.dtype] - 1).bit_length()
    return min(MAX_STAGE_K_BYTES, max(MIN_STAGE_K_BYTES, whole))


def rows_in_order(w: np.ndarray, run: int, dtype: str = "") -> np.ndarray:
    """w[N, K] with its rows where the tensor cores want them, and rows of zeros up to a whole group.

    Of a group of 4 * run columns, thread t of 4 holds 8 j + 2 t and 8 j + 2 t + 1 for every j (PTX ISA,
    wgmma, fragment of matrix D); here it is to hold run t + 2 j and the next.

    Args:
        dtype: what the numbers are brought to on the way; empty for their own.
    """
    group = 4 * run
    N, K = w.shape
    dtype = dtype or str(w.dtype)
    count, rest = divmod(N, group)
    found = np.zeros((count + bool(rest), run // 2, 4, 2, K), dtype)
    found[:count] = w[: N - rest].reshape(-1, 4, run // 2, 2, K).swapaxes(1, 2)
    if rest:
        last = np.zeros((group, K), dtype)
        last[:rest] = w[N - rest :]
        found[count] = last.reshape(4, run // 2, 2, K).swapaxes(0, 1)
    return found.reshape(-1, K)
