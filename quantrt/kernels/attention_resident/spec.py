# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(scale * q @ k^T + mask) @ v) on compute capability 9.0, keys and values read once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention.spec import MAX_ARGS, MAX_OUTPUTS, AttentionProblem
from quantrt.kernels.attention_hopper import spec as hopper
from quantrt.kernels.attention_hopper.spec import ROWS, WARPS
from quantrt.kernels.descriptor import DescriptorType
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, POINTERS
from quantrt.kernels.expression.spec import program_of
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["ResidentTile", "configs", "kernel_of", "why_not"]

MAX_BLOCK_D = 64
MASK_SLOTS = 3
MASK_ROW_BYTES = 16
"""Rows of a mask in memory begin at multiples of this; PTX ISA, tensor maps."""
OTHER_SHARED_BYTES = 2048
"""Of barriers and the runtime."""
MAX_STAGES = 12
SWIZZLE_BYTES = 128

_ELEMENTS = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class ResidentTile:
    """How attention is cut.

    Attributes:
        consumers: groups of 64 queries of a program, 2 or 3.
        block_n: keys of a step.
        stages: of the ring in shared memory.
    """

    consumers: int
    block_n: int
    stages: int

    @property
    def name(self) -> str:
        """As tactics are named: "resident 3x64x64 s9"."""
        return f"resident {self.consumers}x{ROWS}x{self.block_n} s{self.stages}"

    @property
    def queries(self) -> int:
        """Of one round."""
        return ROWS * self.consumers


def why_not(problem: AttentionProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reason = hopper.why_not(replace(problem, mask="none"), device)
    is_added = problem.mask in ("none", "added") and problem.mask_dtype in ("", "float16")
    reasons = (
        (problem.is_causal, "causal"),
        (problem.block_d > MAX_BLOCK_D, f"heads of {problem.D}: at most {MAX_BLOCK_D}"),
        (not is_added, f"a mask of {problem.mask_dtype} that is {problem.mask}"),
        (
            problem.mask != "none" and 2 * problem.mask_unit < MASK_ROW_BYTES,
            "rows of a mask that do not begin at 16 bytes",
        ),
    )
    return reason or next((text for is_so, text in reasons if is_so), None)


def configs(problem: AttentionProblem, device: GpuFacts) -> tuple[ResidentTile, ...]:
    """What is worth timing: each with as many stages as there is room for."""
    found = []
    for consumers, block_n in ((3, 64), (2, 64), (2, 128)):
        block = 4 * block_n * max(32, problem.block_d)
        masks = MASK_SLOTS * consumers * ROWS * block_n * 2 if problem.has_mask_rows else 0
        widest = max(ELEMENT_BYTES[dtype] for dtype in problem.outputs)
        stored = consumers * ROWS * max(32, problem.block_d) * widest
        room = (device.shared_memory_bytes - OTHER_SHARED_BYTES - stored - masks) // block
        if room >= 2:
            found.append(ResidentTile(consumers, block_n, min(room, MAX_STAGES)))
    return tuple(found)


def kernel_of(problem: AttentionProblem, tile: ResidentTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. B, H, S and T do not enter it."""
    columns, element = max(32, problem.block_d), _ELEMENTS[problem.dtype]
    numbers = len(problem.epilogue.operands) - 1
    mask = "none" if problem.mask == "none" else "rows" if problem.has_mask_rows else "row"
    block = _descriptor(element, (1, 1, tile.block_n, columns))
    types = {
        "q_ptr": POINTERS[problem.dtype],
        "k_desc": block,
        "v_desc": block,
        **({"mask_desc": _mask_descriptor(mask, tile)} if mask != "none" else {}),
        **{f"y{i}_ptr": POINTERS[dtype] for i, dtype in enumerate(problem.outputs)},
        **{f"arg{i}": "fp32" for i in range(numbers)},
        **dict.fromkeys(("B", "H", "S", "T", "rounds", "q_b", "q_h", "q_s"), "i32"),
        **dict.fromkeys(("mask_b", "mask_h") if mask != "none" else (), "i32"),
        **dict.fromkeys(("y_b", "y_h", "y_s"), "i32"),
        "scale": "fp32",
    }
    slots = ["mask_desc", "mask_b", "mask_h"]
    slots += [*(f"y{i}_ptr" for i in range(MAX_OUTPUTS)), *(f"arg{i}" for i in range(MAX_ARGS))]
    fixed = {
        **{name: 0 for name in slots if name not in types},
        "UNIT": problem.unit,
        "MASK_UNIT": problem.mask_unit,
        "GROUPS": problem.groups,
        "D": problem.D,
        "MASK": problem.mask,
        "HAS_MASK_ROWS": problem.has_mask_rows,
        "KINDS": ("scalar",) * numbers,
        "PROGRAM": program_of(problem.epilogue, problem.outputs),
        "OUTPUTS": problem.epilogue.outputs,
        "BLOCK_N": tile.block_n,
        "BLOCK_D": columns,
        "STAGES": tile.stages,
        "CONSUMERS": tile.consumers,
        "MASK_SLOTS": MASK_SLOTS,
    }
    return KernelSpec(
        family="attention_resident",
        function="attention_resident",
        signature=tuple(types.items()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=WARPS * (tile.consumers + 1),
        num_stages=tile.stages,
        is_exact=False,
    )


def _descriptor(element: str, block: tuple[int, ...]) -> str:
    return str(DescriptorType(element, block, min(SWIZZLE_BYTES, block[-1] * 2)))


def _mask_descriptor(mask: str, tile: ResidentTile) -> str:
    rows = ROWS if mask == "rows" else 1
    block = (1, 1, rows, tile.block_n)
    return _descriptor("fp16", block) if rows > 1 else str(DescriptorType("fp16", block, 0))
