# SPDX-License-Identifier: Apache-2.0
"""Codes of q, k and v for attention: which kernel makes them, and in which order values lie.

Values are kept as tensor cores take and give them (PTX ISA, wgmma, fragments of matrices A and D; mma has the
same), so that no thread hands a number to another: keys within each 16, and in the order "fragments" columns
too.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.epilogue.spec import POINTERS
from quantrt.kernels.kernel import KernelSpec

__all__ = ["CODES", "KEY_GROUP", "CodeFormat", "encoder_of"]

SAMPLES = 128
"""Keys that the mean is taken of."""
NUM_WARPS = 8

KEY_GROUP = 16
"""Keys that rows of codes of values are filled up to a multiple of, with zeros."""

CODES = {"int8": "*i8", "fp8": "*fp8e4nv"}
"""Triton's pointers to codes."""


@dataclass(frozen=True)
class CodeFormat:
    """How q, k and v are coded.

    Attributes:
        scores: "int8" or "fp8", of q and k; or "floats" for them as they are.
        values: "fp8", or "floats" for v as it is.
        block_n: keys with one scale.
        block_d: columns that codes are stored with, zeros behind those of the head.
        order: of values, "fragments" or "keys", in which columns are as they come.
    """

    scores: str
    values: str
    block_n: int
    block_d: int
    order: str = "fragments"


def encoder_of(problem: AttentionProblem, form: CodeFormat) -> KernelSpec:
    """The kernel that codes q, k and v of a problem; B, H, S and T do not enter it."""
    floats = POINTERS[problem.dtype]
    pointers = {f"{name}_ptr": floats for name in "qkv"}
    kinds = {"q": form.scores, "k": form.scores, "v": form.values}
    for name, kind in kinds.items():
        if kind != "floats":
            pointers |= {f"{name}_codes_ptr": CODES[kind], f"{name}_scale_ptr": "*fp32"}
    absent = (f"{name}_{what}_ptr" for name in kinds for what in ("codes", "scale"))
    sizes = ("B", "H", "S", "T", *(f"{name}_{axis}" for name in "qkv" for axis in _axes(name)))
    fixed = {
        **{name: 0 for name in absent if name not in pointers},
        "UNIT": problem.unit,
        "GROUPS": problem.groups,
        "D": problem.D,
        "SCORES": form.scores,
        "VALUES": form.values,
        "BLOCK_N": form.block_n,
        "BLOCK_D": form.block_d,
        "ORDER": form.order,
        "SAMPLES": SAMPLES,
    }
    types = {**pointers, **dict.fromkeys(sizes, "i32"), "scale": "fp32"}
    return KernelSpec(
        family="attention_codes",
        function="encode_attention",
        signature=tuple(types.items()),
        aligned=frozenset(pointers),
        constants=tuple(fixed.items()),
        num_warps=NUM_WARPS,
        num_stages=1,
        is_exact=False,
    )


def _axes(name: str) -> str:
    return "bhs" if name == "q" else "bht"
