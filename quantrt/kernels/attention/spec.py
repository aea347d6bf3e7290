# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(masked(scale * q @ k^T)) @ v): what the kernel can do, and in which tiles.

q [B, H, S, D], k and v [B, G, T, D], elements of a row side by side; every head of k and v serves H / G heads
of q. The epilogue reads the result as float32 and has no operands but numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import POINTERS, WARP, epilogue_constants, operand_types, output_types
from quantrt.kernels.kernel import KernelSpec
from quantrt.regions.expression import Expression

__all__ = [
    "MASKS",
    "MAX_OFFSET",
    "AttentionProblem",
    "TileConfig",
    "kernel_of",
    "shared_constants",
    "why_not",
]

MASKS = ("none", "added", "kept", "dropped")
MAX_HEAD = 256
MAX_ARGS = 4
MAX_OUTPUTS = 2
MAX_OFFSET = 2**31 - 1
"""Elements that the kernel's 32-bit offsets reach inside a sample of q, k or v, and inside a head's mask."""

PRODUCTS = ("float16", "bfloat16")
"""Element types of q, k and v: sums of float32 would go without tensor cores."""

MASK_POINTERS = {"bool": "*u8", "float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32"}


@dataclass(frozen=True)
class AttentionProblem:
    """One attention at the shape it is timed at.

    Attributes:
        B, H, S, T: samples, heads, queries, keys; the kernel takes any others too.
        groups: heads of q for each head of k and v.
        D: size of a head.
        dtype: of q, k and v.
        unit: strides of q, k and v are multiples of this many elements; a power of 2, at most 16.
        mask: "none"; "added" to the scores; truths: keys that are "kept", or "dropped".
        mask_dtype: its element type; empty without one.
        mask_unit: strides of the mask, but for that of keys, are multiples of this many elements.
        has_mask_rows: the mask differs from query to query.
        epilogue: operand 0 is the result; the others are scalars.
        is_packed: samples have lengths of their own, at most S = T, and lie behind each other; no mask.
        outputs: element type of each output.
    """

    B: int
    H: int
    S: int
    T: int
    groups: int
    D: int
    dtype: str
    unit: int
    mask: str
    mask_dtype: str
    mask_unit: int
    has_mask_rows: bool
    is_causal: bool
    epilogue: Expression
    outputs: tuple[str, ...]
    is_packed: bool = False

    @property
    def tensors(self) -> tuple[str, ...]:
        """Of the epilogue: none."""
        return ()

    @property
    def block_d(self) -> int:
        """Columns of a tile: the head's, up to a power of two."""
        return max(16, 1 << (self.D - 1).bit_length())


@dataclass(frozen=True)
class TileConfig:
    """How attention is cut.

    Attributes:
        block_m, block_n: queries of one program, and keys of one of its steps.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    @property
    def name(self) -> str:
        """As tactics are named: "128x64 w4 s3"."""
        return f"{self.block_m}x{self.block_n} w{self.num_warps} s{self.num_stages}"

    @property
    def threads(self) -> int:
        """Of one program."""
        return WARP * self.num_warps


def why_not(problem: AttentionProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    epilogue = problem.epilogue
    reasons = (
        (problem.dtype not in PRODUCTS, f"q, k and v of {problem.dtype}"),
        (device.capability < 80, f"compute capability {device.capability}: 80 is the least"),
        (not 1 <= problem.D <= MAX_HEAD, f"heads of {problem.D}: at most {MAX_HEAD}"),
        (0 in (problem.B, problem.H, problem.S, problem.T), "an empty tensor"),
        (_reach(problem) > MAX_OFFSET, "a sample of q, k or v that is beyond 32-bit offsets"),
        (_mask_reach(problem) > MAX_OFFSET, "a mask of a head that is beyond 32-bit offsets"),
        (problem.is_packed and problem.mask != "none", "a mask beside lengths"),
        (problem.is_packed and problem.S != problem.T, "other keys than queries beside lengths"),
        (problem.mask not in MASKS, f"a mask that is {problem.mask}"),
        (
            problem.mask != "none" and problem.mask_dtype not in MASK_POINTERS,
            f"a mask of {problem.mask_dtype}",
        ),
        (
            epilogue.has_row or any(epilogue.row_outputs) or epilogue.operands[0].kind != "accumulator",
            "an epilogue over whole rows",
        ),
        (any(x.kind != "scalar" for x in epilogue.operands[1:]), "an epilogue that reads more than numbers"),
        (len(epilogue.operands) - 1 > MAX_ARGS, f"{len(epilogue.operands) - 1} numbers: at most {MAX_ARGS}"),
        (len(problem.outputs) > MAX_OUTPUTS, f"{len(problem.outputs)} outputs: at most {MAX_OUTPUTS}"),
        (any(dtype not in POINTERS for dtype in problem.outputs), f"outputs of {problem.outputs}"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def _reach(problem: AttentionProblem) -> int:
    """Elements from the first of a sample to the last, of q or of k and v, without gaps."""
    heads = problem.H // problem.groups
    return problem.D * max(problem.H * problem.S, heads * problem.T) - 1


def _mask_reach(problem: AttentionProblem) -> int:
    """Elements from the first of a head's mask to the first of its last row, rows filled up."""
    if problem.mask == "none" or not problem.has_mask_rows:
        return 0
    row = -(-problem.T // problem.mask_unit) * problem.mask_unit
    return (problem.S - 1) * row


def shared_constants(problem: AttentionProblem) -> dict[str, Any]:
    """Constants of every kernel of attention: of the mask, heads and the epilogue."""
    return {
        "MASK_UNIT": problem.mask_unit,
        "GROUPS": problem.groups,
        "D": problem.D,
        "MASK": problem.mask,
        "HAS_MASK_ROWS": problem.has_mask_rows,
        **epilogue_constants(problem),
    }


def kernel_of(problem: AttentionProblem, config: TileConfig) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. B, H, S and T do not enter it."""
    has_mask = problem.mask != "none"
    pointers = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), POINTERS[problem.dtype])
    pointers |= {"mask_ptr": MASK_POINTERS[problem.mask_dtype]} if has_mask else {}
    pointers |= {"offsets_ptr": "*i32"} if problem.is_packed else {}
    pointers |= output_types(problem)
    tensors = ("q", "k", "v", "mask", "y") if has_mask else ("q", "k", "v", "y")
    axes = {"q": "bhs", "k": "bht", "v": "bht", "mask": "bhs", "y": "bhs"}
    sizes = ("H", "S", "T", *(f"{name}_{axis}" for name in tensors for axis in axes[name]))
    absent = [] if problem.is_packed else ["offsets_ptr"]
    absent += [] if has_mask else ["mask_ptr", "mask_b", "mask_h", "mask_s"]
    fixed = {
        **dict.fromkeys(absent, 0),
        **({} if problem.mask in ("kept", "dropped") else {"mask_value": 0.0}),
        "UNIT": problem.unit,
        **shared_constants(problem),
        "IS_CAUSAL": problem.is_causal,
        "IS_PACKED": problem.is_packed,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_D": problem.block_d,
    }
    last = {"scale": "fp32", **({"mask_value": "fp32"} if problem.mask in ("kept", "dropped") else {})}
    types = {**pointers, **operand_types(problem), **dict.fromkeys(sizes, "i32"), **last}
    return KernelSpec(
        family="attention",
        function="attention",
        signature=tuple(types.items()),
        aligned=frozenset(pointers),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        is_exact=False,
    )
