# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(scale * q @ k^T + mask) @ v) on compute capability 9.0: in which forms and tiles.

q, k and v are codes as `kernels.attention_codes` makes them, or floats as they are; with a mask q and k are
floats. The scale is above 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention import spec as attention
from quantrt.kernels.attention.spec import AttentionProblem, shared_constants
from quantrt.kernels.attention_codes.spec import CodeFormat
from quantrt.kernels.descriptor import ELEMENT_BITS, DescriptorType
from quantrt.kernels.epilogue.spec import operand_types, output_types
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["QUERIES", "HopperAttention", "descriptor_of", "kernel_of", "shared_bytes", "why_not"]

CAPABILITY = 90
ROWS = 64
"""Queries of a consumer."""
CONSUMERS = 2
QUERIES = ROWS * CONSUMERS
"""Of one program."""
WARPS = 4
"""Of a consumer; the producer's group has as many, of which three sleep."""
QUERY_SLOTS = 2
MAX_BLOCK_D = 128
MIN_BLOCK_D = 32
SWIZZLE_BYTES = 128

_ELEMENTS = {"int8": "i8", "fp8": "fp8e4nv", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class HopperAttention:
    """How attention is cut.

    Attributes:
        scores: what q and k are multiplied as: "int8", "fp8" or "floats", those of the problem.
        values: what v is multiplied as: "fp8" or "floats".
        block_n: keys of a step, 64 or 128.
        stages: of the ring in shared memory.
        lines: of every two words of FP8 weights, how many are straight lines between powers of two.
        turns: consumers begin their products in turn.
    """

    scores: str
    values: str
    block_n: int
    stages: int
    lines: int = 0
    turns: bool = False

    @property
    def name(self) -> str:
        """As tactics are named: "hopper int8 fp8 2x64x128 s4"."""
        forms = "floats" if self.scores == self.values == "floats" else f"{self.scores} {self.values}"
        marks = (f" l{self.lines}" if self.lines else "") + (" turns" if self.turns else "")
        return f"hopper {forms} {CONSUMERS}x{ROWS}x{self.block_n} s{self.stages}{marks}"

    def format_of(self, problem: AttentionProblem) -> CodeFormat:
        """The codes that it reads."""
        return CodeFormat(self.scores, self.values, self.block_n, _block_d_of(problem))


def _block_d_of(problem: AttentionProblem) -> int:
    """Columns of a tile."""
    return max(MIN_BLOCK_D, problem.block_d)


def shared_bytes(problem: AttentionProblem, how: HopperAttention) -> int:
    """Of queries and the ring."""
    scores, values = (ELEMENT_BITS[kind] // 8 for kind in _kinds(problem, how))
    columns = _block_d_of(problem)
    block = how.block_n * columns * (scores + values)
    return QUERY_SLOTS * QUERIES * columns * scores + how.stages * block


def why_not(problem: AttentionProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reasons = (
        (device.capability != CAPABILITY, f"instructions of compute capability {CAPABILITY} alone"),
        (problem.mask not in ("none", "added"), f"keys that are {problem.mask}"),
        (problem.mask_dtype not in ("", "float16"), f"a mask of {problem.mask_dtype}"),
        (problem.has_mask_rows, "a mask with a row for every query"),
        (problem.mask != "none" and problem.is_causal, "a mask beside a causal one"),
        (problem.mask != "none" and problem.mask_unit % 8 > 0, "a mask whose rows do not begin at 16 bytes"),
        (problem.D > MAX_BLOCK_D, f"heads of {problem.D}: at most {MAX_BLOCK_D}"),
        (problem.D * problem.unit % 8 > 0 or problem.unit % 8 > 0, "rows that do not begin at 16 bytes"),
    )
    return next((reason for is_so, reason in reasons if is_so), None) or attention.why_not(problem, device)


def kernel_of(problem: AttentionProblem, how: HopperAttention) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. B, H, S and T do not enter it."""
    scores, values = _kinds(problem, how)
    columns = _block_d_of(problem)
    has_codes, has_value_codes = ELEMENT_BITS[scores] == 8, ELEMENT_BITS[values] == 8
    v_block = (1, 1, columns, how.block_n) if has_value_codes else (1, 1, how.block_n, columns)
    has_mask = problem.mask != "none"
    types = {
        "q_desc": descriptor_of(scores, (1, 1, ROWS, columns)),
        "k_desc": descriptor_of(scores, (1, 1, how.block_n, columns)),
        "v_desc": descriptor_of(values, v_block),
        **({"mask_desc": str(DescriptorType("fp16", (1, 1, 1, how.block_n), 0))} if has_mask else {}),
        **({"q_scale_ptr": "*fp32", "k_scale_ptr": "*fp32"} if has_codes else {}),
        **({"v_scale_ptr": "*fp32"} if has_value_codes else {}),
        **output_types(problem),
        **operand_types(problem),
        **dict.fromkeys(("B", "H", "S", "T", *(("mask_b", "mask_h") if has_mask else ())), "i32"),
        **dict.fromkeys(("y_b", "y_h", "y_s"), "i32"),
        **({} if has_codes else {"scale": "fp32"}),
    }
    absent = ["mask_desc", "mask_b", "mask_h", "q_scale_ptr", "k_scale_ptr", "v_scale_ptr"]
    fixed = {
        **{name: 0 for name in absent if name not in types},
        **({"scale": 0.0} if has_codes else {}),
        "UNIT": problem.unit,
        **shared_constants(problem),
        "IS_CAUSAL": problem.is_causal,
        "BLOCK_N": how.block_n,
        "BLOCK_D": columns,
        "STAGES": how.stages,
        "LINES": how.lines,
        "TURNS": how.turns,
    }
    return KernelSpec(
        family="attention_hopper",
        function="attention_hopper",
        signature=tuple(types.items()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=WARPS * (CONSUMERS + 1),
        num_stages=how.stages,
        is_exact=False,
    )


def _kinds(problem: AttentionProblem, how: HopperAttention) -> tuple[str, str]:
    """Triton's element types of q and k, and of v."""
    floats = _ELEMENTS[problem.dtype]
    scores = floats if how.scores == "floats" else _ELEMENTS[how.scores]
    return scores, floats if how.values == "floats" else _ELEMENTS[how.values]


def descriptor_of(element: str, block: tuple[int, ...]) -> str:
    """The type of a descriptor whose blocks lie in shared memory as wgmma reads them."""
    row_bytes = block[-1] * ELEMENT_BITS[element] // 8
    return str(DescriptorType(element, block, min(SWIZZLE_BYTES, row_bytes)))
