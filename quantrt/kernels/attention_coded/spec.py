# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(masked(scale * q @ k^T)) @ v) over codes: in which forms and tiles.

q, k and v are codes as `kernels.attention_codes` makes them, or floats as they are. The scale is above 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention import spec as attention
from quantrt.kernels.attention.spec import MAX_OFFSET, AttentionProblem
from quantrt.kernels.attention_codes.spec import CODES, KEY_GROUP, CodeFormat
from quantrt.kernels.epilogue.spec import POINTERS, WARP, operand_types, output_types
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["CodedAttention", "block_d_of", "kernel_of", "why_not"]

MIN_BLOCK_D = 32
"""The least that a product of 8 bits sums over."""


@dataclass(frozen=True)
class CodedAttention:
    """How attention is cut.

    Attributes:
        scores: what q and k are multiplied as: "int8", "fp8" or "floats", those of the problem.
        values: what v is multiplied as: "fp8" or "floats".
        block_m, block_n: queries of one program, and keys of one of its steps.
    """

    scores: str
    values: str
    block_m: int
    block_n: int
    num_warps: int
    num_stages: int

    @property
    def name(self) -> str:
        """As tactics are named: "int8 fp8 128x64 w8 s3"."""
        tile = f"{self.block_m}x{self.block_n} w{self.num_warps} s{self.num_stages}"
        return f"{self.scores} {self.values} {tile}"

    @property
    def threads(self) -> int:
        """Of one program."""
        return WARP * self.num_warps

    def format_of(self, problem: AttentionProblem) -> CodeFormat:
        """The codes that it reads."""
        return CodeFormat(self.scores, self.values, self.block_n, block_d_of(problem), "keys")


def block_d_of(problem: AttentionProblem) -> int:
    """Columns of a tile."""
    return max(MIN_BLOCK_D, problem.block_d)


def why_not(problem: AttentionProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can.

    Values in FP8 need a device that has it.
    """
    reach = block_d_of(problem) * max(problem.S, problem.T + KEY_GROUP)
    reasons = (
        (problem.is_packed, "samples with lengths of their own"),
        (reach > MAX_OFFSET, "codes of a head that are beyond 32-bit offsets"),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or attention.why_not(problem, device)


def kernel_of(problem: AttentionProblem, how: CodedAttention) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. B, H, S and T do not enter it."""
    has_mask, is_of_truths = problem.mask != "none", problem.mask in ("kept", "dropped")
    are_codes = how.scores != "floats", how.values != "floats"
    score = CODES[how.scores] if are_codes[0] else POINTERS[problem.dtype]
    value = CODES[how.values] if are_codes[1] else POINTERS[problem.dtype]
    tensors = {"q": "bhs", "k": "bht", "v": "bht", **({"mask": "bhs"} if has_mask else {}), "y": "bhs"}
    types = {
        "q_ptr": score,
        "k_ptr": score,
        "v_ptr": value,
        **({"q_scale_ptr": "*fp32", "k_scale_ptr": "*fp32"} if are_codes[0] else {}),
        **({"v_scale_ptr": "*fp32"} if are_codes[1] else {}),
        **({"mask_ptr": attention.MASK_POINTERS[problem.mask_dtype]} if has_mask else {}),
        **output_types(problem),
        **operand_types(problem),
        **dict.fromkeys(("H", "S", "T"), "i32"),
        **{f"{name}_{axis}": "i32" for name, axes in tensors.items() for axis in axes},
        **({} if are_codes[0] else {"scale": "fp32"}),
        **({"mask_value": "fp32"} if is_of_truths else {}),
    }
    absent = [f"{name}_scale_ptr" for name in "qkv"] + ["mask_ptr", "mask_b", "mask_h", "mask_s"]
    fixed = {
        **{name: 0 for name in absent if name not in types},
        **{name: 0.0 for name in ("scale", "mask_value") if name not in types},
        "UNIT": KEY_GROUP if are_codes[0] else problem.unit,
        "VALUE_UNIT": KEY_GROUP if are_codes[1] else problem.unit,
        **attention.shared_constants(problem),
        "IS_CAUSAL": problem.is_causal,
        "BLOCK_M": how.block_m,
        "BLOCK_N": how.block_n,
        "BLOCK_D": block_d_of(problem),
    }
    return KernelSpec(
        family="attention_coded",
        function="attention_coded",
        signature=tuple(types.items()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=how.num_warps,
        num_stages=how.num_stages,
        is_exact=False,
    )
