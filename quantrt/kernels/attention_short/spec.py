# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(scale * q @ k^T + mask) @ v) over few keys, compute capability 9.0: in what tiles."""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention.spec import AttentionProblem, shared_constants
from quantrt.kernels.attention_hopper import spec as hopper
from quantrt.kernels.attention_hopper.spec import MIN_BLOCK_D, QUERIES
from quantrt.kernels.descriptor import DescriptorType
from quantrt.kernels.epilogue.spec import operand_types, output_types
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["ShortAttention", "configs", "kernel_of", "why_not"]

MAX_KEYS = 1024
"""Over more, `attention_hopper` and cuDNN are faster on an H200."""
MAX_BLOCK_D = 64
"""Of a wider head two programs have neither registers nor room."""
BLOCK_N = 64
STAGES = 4
NEIGHBOURS = 2
"""Programs of a multiprocessor."""
WARPS = 8
"""That compute; the producer's group has 4, of which three sleep."""
MIN_TAIL = 16
"""Keys of one step of a product of 16-bit floats."""
LEAST_TILES_RATIO = 0.5
"""Tiles for a multiprocessor: with fewer, most have nothing to do."""

_ELEMENTS = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class ShortAttention:
    """How attention is cut.

    Attributes:
        tail: keys of the step with the last ones, a power of two.
    """

    tail: int = BLOCK_N

    @property
    def name(self) -> str:
        """As tactics are named: "short 128x64+16"."""
        return f"short {QUERIES}x{BLOCK_N}" + (f"+{self.tail}" if self.tail < BLOCK_N else "")


def why_not(problem: AttentionProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reasons = (
        (problem.is_causal, "causal"),
        (problem.is_packed, "samples with lengths of their own"),
        (problem.T > MAX_KEYS, f"{problem.T} keys: at most {MAX_KEYS}"),
        (problem.block_d > MAX_BLOCK_D, f"heads of {problem.D}: at most {MAX_BLOCK_D}"),
    )
    reason = next((reason for is_so, reason in reasons if is_so), None)
    return reason or hopper.why_not(problem, device)


def configs(problem: AttentionProblem, device: GpuFacts) -> tuple[ShortAttention, ...]:
    """What is worth timing, the most promising first."""
    tiles = problem.B * problem.H * -(-problem.S // QUERIES)
    if tiles < LEAST_TILES_RATIO * device.multiprocessors:
        return ()
    rest = problem.T % BLOCK_N
    has_tail = problem.mask == "none" and problem.T > BLOCK_N and 0 < rest <= BLOCK_N // 2
    return (ShortAttention(max(MIN_TAIL, 1 << (rest - 1).bit_length()) if has_tail else BLOCK_N),)


def kernel_of(problem: AttentionProblem, how: ShortAttention) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against; for others of B, H, S and T too."""
    columns, element = max(MIN_BLOCK_D, problem.block_d), _ELEMENTS[problem.dtype]
    has_mask = problem.mask != "none"
    keys = hopper.descriptor_of(element, (1, 1, BLOCK_N, columns))
    types = {
        "q_desc": hopper.descriptor_of(element, (1, 1, QUERIES, columns)),
        "k_desc": keys,
        "v_desc": keys,
        **({"mask_desc": str(DescriptorType("fp16", (1, 1, 1, BLOCK_N), 0))} if has_mask else {}),
        **output_types(problem),
        **operand_types(problem),
        **dict.fromkeys(("B", "H", "S", "T", *(("mask_b", "mask_h") if has_mask else ())), "i32"),
        **dict.fromkeys(("y_b", "y_h", "y_s"), "i32"),
        "scale": "fp32",
    }
    absent = ["mask_desc", "mask_b", "mask_h"]
    fixed = {
        **{name: 0 for name in absent if name not in types},
        "UNIT": problem.unit,
        **shared_constants(problem),
        "BLOCK_N": BLOCK_N,
        "BLOCK_D": columns,
        "TAIL": how.tail,
        "STAGES": STAGES,
        "FIRST_WARPS": WARPS,
        "NEIGHBOURS": NEIGHBOURS,
    }
    return KernelSpec(
        family="attention_short",
        function="attention_short",
        signature=tuple(types.items()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=WARPS + hopper.WARPS,
        num_stages=STAGES,
        is_exact=False,
    )
