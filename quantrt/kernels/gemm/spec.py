# SPDX-License-Identifier: Apache-2.0
"""y[M, N] = epilogue(x[M, K] @ w[N, K]^T): what the kernel can do, in which tiles, and what it costs.

int8 codes accumulate in int32, exactly; floats in float32. Hopper's tensor cores keep 14 bits of the sums of
FP8 products (DeepSeek-AI 2024, "DeepSeek-V3 technical report", section 3.3.2): a tile that promotes adds up
the sums of 128 terms at a time in float32, at the price of a second accumulator; so do tiles of
kernels/gemm_hopper. The epilogue reads the accumulator as float32.

A gate has two accumulators, y = epilogue(x @ a^T, x @ b^T). Its w [2 N, K] holds rows of a and b in turns, so
that both sums of one output stand side by side in a tile, in registers of the same thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from quantrt.dtypes import FP8
from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import (
    ELEMENT_BYTES,
    MAX_CODE_TERMS,
    POINTERS,
    WARP,
    epilogue_constants,
    operand_types,
    output_types,
    why_not_epilogue,
)
from quantrt.kernels.expression.spec import flops_of, needs_exact
from quantrt.kernels.kernel import KernelSpec, pointers_of
from quantrt.kernels.live_rows import ALL_ROWS
from quantrt.regions.expression import Expression

__all__ = [
    "MAX_STRIDE_UNIT",
    "MOST_TERMS",
    "ROW",
    "GemmProblem",
    "TileConfig",
    "kernel_of",
    "kinds_of",
    "why_not",
]

MAX_OFFSET = 2**31 - 1

MAX_STRIDE_UNIT = 16
"""Elements that one vector load takes at most: 16 bytes of int8."""

ROW = "row"
"""Kind of a tensor operand with one element for each row; "tensor" has one for each of the output."""

MAX_SHORT_FLOPS = 16
MAX_SHORT_ACCUMULATORS = 64
MAX_LONG_ACCUMULATORS = 32
MAX_PARTS = 4
MANY_STORED = 3
MIN_PART = 16
"""An epilogue runs on parts of the columns, so that a thread has no more accumulators at a time: as a whole
it spills on 9.0. It is short with at most so many operations for one element and nothing stored but one
output; with MANY_STORED tensors and outputs together, parts are as small as they may be."""

MOST_TERMS = 3072
"""Of FP8 that are left to Hopper's tensor cores before other ways are tried. A sum is cut there, not rounded,
to 14 bits with each 32 terms, and loses half of 2**-13 of its size K / 32 times: here 0.6 % of the largest
that it was. Of 4096 terms one of 12 million results is off by more than 1 % of their size and of its own."""

PRODUCTS = ("int8", "float8_e4m3fn", "float16", "bfloat16", "float32")


@dataclass(frozen=True)
class GemmProblem:
    """One product with its epilogue, at the shape it is timed at.

    Attributes:
        M: rows of x: all axes but the last; the kernel takes any other number too.
        N: columns of y.
        dtype: of x and w: int8, float8_e4m3fn, float16, bfloat16 or float32.
        stride_unit: the row stride of x is a multiple of this many elements; a power of 2, at most 16.
        epilogue: operand 0 is the accumulator.
        tensors: element type of each tensor operand of the epilogue.
        outputs: element type of each output.
        is_gated: the product has two columns for each of y.
        pitches: elements from one row to the next of the tensors, then of the outputs; empty where none has
            gaps.
        per_row: of the tensors that have one element for each row: their numbers.
    """

    M: int
    N: int
    K: int
    dtype: str
    stride_unit: int
    epilogue: Expression
    tensors: tuple[str, ...]
    outputs: tuple[str, ...]
    is_gated: bool = False
    pitches: tuple[int, ...] = ()
    per_row: tuple[int, ...] = ()

    @property
    def columns(self) -> int:
        """Of the product."""
        return 2 * self.N if self.is_gated else self.N

    @property
    def blocks(self) -> tuple[str, ...]:
        """Element types of the tensors that have an element for each of the output."""
        return tuple(dtype for number, dtype in enumerate(self.tensors) if number not in self.per_row)


@dataclass(frozen=True)
class TileConfig:
    """How the product is cut.

    Attributes:
        block_m, block_n, block_k: one program's tile of the product, and how much of K it multiplies at once,
            in elements.
        group_m: rows of tiles that programs walk down before the next column, so that they share w in L2.
        promotes: sums of FP8 products are added up in float32, see above.
    """

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    group_m: int = 8
    promotes: bool = False

    @property
    def name(self) -> str:
        """As tactics are named: "128x256x64 w8 s3"."""
        name = f"{self.block_m}x{self.block_n}x{self.block_k} w{self.num_warps} s{self.num_stages}"
        return f"{name} promoted" if self.promotes else name

    @property
    def accumulators(self) -> int:
        """Of one thread."""
        return self.block_m * self.block_n // (WARP * self.num_warps)

    def shared_bytes(self, dtype: str) -> int:
        """Of the pipeline's buffers: one of x and one of w for every stage."""
        return self.num_stages * (self.block_m + self.block_n) * self.block_k * ELEMENT_BYTES[dtype]


def why_not(problem: GemmProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reasons = (
        (problem.dtype not in PRODUCTS, f"no product of {problem.dtype}"),
        (
            device.capability < 80 and problem.dtype != "float32",
            f"Triton compiles no tensor-core products for compute capability {device.capability}: 80 is the "
            "least",
        ),
        (
            problem.dtype == FP8.name and not device.has_fp8_tensor_cores,
            f"no fp8 products on compute capability {device.capability}: 89 is the least",
        ),
        (
            problem.dtype == "int8" and problem.K > MAX_CODE_TERMS,
            f"int32 sums of {problem.K} products of codes can overflow: at most {MAX_CODE_TERMS}",
        ),
        (problem.N < 1 or problem.K < 1, "an empty weight"),
        (
            problem.columns * 256 > MAX_OFFSET or problem.K * 256 > MAX_OFFSET,
            "offsets in a tile beyond 32 bits",
        ),
    )
    found = next((reason for is_so, reason in reasons if is_so), None)
    return found or why_not_epilogue(problem, accumulators=2 if problem.is_gated else 1)


def kernel_of(problem: GemmProblem, config: TileConfig) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. M does not enter it."""
    types = {
        "x_ptr": POINTERS[problem.dtype],
        "w_ptr": POINTERS[problem.dtype],
        **output_types(problem),
        **operand_types(problem),
    }
    fixed = {
        **ALL_ROWS,
        "STRIDE_UNIT": problem.stride_unit,
        "N": problem.N,
        "K": problem.K,
        "GATED": problem.is_gated,
        **epilogue_constants(problem),
        "KINDS": kinds_of(problem),
        "PRECISION": "ieee",
        "PROMOTES": config.promotes,
        "PARTS": _parts(problem, config),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "GROUP_M": config.group_m,
    }
    return KernelSpec(
        family="gemm",
        function="gemm",
        signature=(*types.items(), ("M", "i32"), ("stride_xm", "i32")),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        is_exact=needs_exact(problem.epilogue, problem.outputs),
    )


def kinds_of(problem: GemmProblem) -> tuple[str, ...]:
    """Of every operand behind the accumulators, with tensors of one element for each row apart."""
    numbers = count()
    kinds = (x.kind for x in problem.epilogue.operands if x.kind != "accumulator")
    return tuple(ROW if kind == "tensor" and next(numbers) in problem.per_row else kind for kind in kinds)


def _parts(problem: GemmProblem, config: TileConfig) -> int:
    """In how many parts the epilogue runs."""
    stored = len(problem.outputs) + len(problem.blocks)
    is_short = flops_of(problem.epilogue, problem.outputs) <= MAX_SHORT_FLOPS and stored == 1
    limit = MAX_LONG_ACCUMULATORS if stored < MANY_STORED else MIN_PART
    parts = 1
    while (
        parts < MAX_PARTS
        and config.accumulators > parts * (MAX_SHORT_ACCUMULATORS if is_short else limit)
        and config.block_n >= 2 * parts * MIN_PART
    ):
        parts *= 2
    return parts
