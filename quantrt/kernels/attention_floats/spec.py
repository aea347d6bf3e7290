# SPDX-License-Identifier: Apache-2.0
"""y = epilogue(softmax(masked(scale * q @ k^T)) @ v) of 16-bit floats, compute capability 9.0: its tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention import spec as attention
from quantrt.kernels.attention.spec import MASK_POINTERS, MAX_ARGS, MAX_OUTPUTS, AttentionProblem
from quantrt.kernels.attention_hopper.spec import (
    MIN_BLOCK_D,
    QUERY_SLOTS,
    ROWS,
    WARPS,
    descriptor_of,
)
from quantrt.kernels.attention_hopper.spec import why_not as why_not_unmasked
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES, POINTERS
from quantrt.kernels.expression.spec import program_of
from quantrt.kernels.kernel import KernelSpec, pointers_of

__all__ = ["FloatTile", "configs", "kernel_of", "why_not"]

LEAST_STAGES = 3
"""One block's values, the next block, and the one behind it."""

OTHER_SHARED_BYTES = 1024
"""Of barriers and the runtime, beside queries and the ring."""

_ELEMENTS = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class FloatTile:
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
        """As tactics are named: "floats 2x64x64 s4"."""
        return f"floats {self.consumers}x{ROWS}x{self.block_n} s{self.stages}"

    @property
    def queries(self) -> int:
        """Of one program."""
        return ROWS * self.consumers


TILES = (FloatTile(2, 64, 4), FloatTile(3, 64, 4), FloatTile(2, 128, 3))

NARROW = (2, 64)
"""Consumers and keys of a step with registers for a mask too."""


def why_not(problem: AttentionProblem, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute the problem on the device, in one phrase; None when it can."""
    reason = attention.why_not(problem, device)
    if reason is None and problem.is_causal:
        return "causal"
    return reason or why_not_unmasked(replace(problem, mask="none"), device)


def configs(problem: AttentionProblem, device: GpuFacts) -> tuple[FloatTile, ...]:
    """What is worth timing: groups of queries that leave few of them empty first; none for a few tiles."""
    fitting = [
        tile
        for tile in TILES
        if (problem.mask == "none" or (tile.consumers, tile.block_n) == NARROW)
        and shared_bytes(problem, tile) + OTHER_SHARED_BYTES <= device.shared_memory_bytes
        and 2 * _tiles(problem, tile) >= device.multiprocessors
    ]
    return tuple(sorted(fitting, key=lambda tile: _tiles(problem, tile) * tile.queries))


def shared_bytes(problem: AttentionProblem, tile: FloatTile) -> int:
    """Of queries and the ring."""
    rows = QUERY_SLOTS * tile.queries + 2 * tile.stages * tile.block_n
    return rows * _columns(problem) * ELEMENT_BYTES[problem.dtype]


def kernel_of(problem: AttentionProblem, tile: FloatTile) -> KernelSpec:
    """The kernel for a problem that `why_not` has nothing against. B, H, S and T do not enter it."""
    columns, element = _columns(problem), _ELEMENTS[problem.dtype]
    numbers = len(problem.epilogue.operands) - 1
    has_mask, has_value = problem.mask != "none", problem.mask in ("kept", "dropped")
    of_mask = ("mask_b", "mask_h", "mask_s") if has_mask else ()
    types = {
        "q_desc": descriptor_of(element, (1, 1, ROWS, columns)),
        "k_desc": descriptor_of(element, (1, 1, tile.block_n, columns)),
        "v_desc": descriptor_of(element, (1, 1, tile.block_n, columns)),
        **({"mask_ptr": MASK_POINTERS[problem.mask_dtype]} if has_mask else {}),
        **{f"y{i}_ptr": POINTERS[dtype] for i, dtype in enumerate(problem.outputs)},
        **{f"arg{i}": "fp32" for i in range(numbers)},
        **dict.fromkeys(("B", "H", "S", "T", *of_mask, "y_b", "y_h", "y_s"), "i32"),
        "scale": "fp32",
        **({"mask_value": "fp32"} if has_value else {}),
    }
    slots = ["mask_ptr", "mask_b", "mask_h", "mask_s"]
    slots += [*(f"y{i}_ptr" for i in range(MAX_OUTPUTS)), *(f"arg{i}" for i in range(MAX_ARGS))]
    fixed = {
        **{name: 0 for name in slots if name not in types},
        **({} if has_value else {"mask_value": 0.0}),
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
    }
    return KernelSpec(
        family="attention_floats",
        function="attention_floats",
        signature=tuple(types.items()),
        aligned=pointers_of(types),
        constants=tuple(fixed.items()),
        num_warps=WARPS * (tile.consumers + 1),
        num_stages=tile.stages,
        is_exact=False,
    )


def _columns(problem: AttentionProblem) -> int:
    """Of a tile."""
    return max(MIN_BLOCK_D, problem.block_d)


def _tiles(problem: AttentionProblem, tile: FloatTile) -> int:
    return problem.B * problem.H * -(-problem.S // tile.queries)
