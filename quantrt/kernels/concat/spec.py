# SPDX-License-Identifier: Apache-2.0
"""y = x_0, x_1, ... side by side along one axis: elements of any type, copied as words of up to eight bytes.

In the order in which y lies in memory, what is behind the axis belongs to a row with it: a tensor is rows of
neighbouring elements, each input's at a distance of its own, and a row of y one row of every input in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.rows.walk import View, memory_order

__all__ = [
    "MAX_INPUTS",
    "Run",
    "TileConfig",
    "copied_run",
    "fits",
    "is_aligned",
    "joined_order",
    "kernel_of",
    "run_of",
    "word_bytes_of",
    "word_bytes_of_kernel",
]

MAX_INPUTS = 8
"""Slots of the kernel."""

ALIGNMENT = 16
"""Of pointers in bytes, and of sizes and distances in words, for loads of 16 bytes."""

MAX_WORDS = 2**31 - 1
WORDS = {8: "i64", 4: "i32", 2: "i16", 1: "i8"}


@dataclass(frozen=True)
class Run:
    """One input as rows.

    Attributes:
        rows: how many.
        columns: neighbouring elements, or words, of a row.
        stride: from row to row, in the same unit.
    """

    rows: int
    columns: int
    stride: int

    def in_words(self, item_bytes: int, word_bytes: int) -> Run:
        """The same rows of other units."""
        return Run(self.rows, self.columns * item_bytes // word_bytes, self.stride * item_bytes // word_bytes)


@dataclass(frozen=True)
class TileConfig:
    """What one program copies at a time.

    Attributes:
        rows, columns: powers of 2; columns in words.
    """

    rows: int
    columns: int
    num_warps: int

    @property
    def name(self) -> str:
        """As tactics are named: "8x64 w4"."""
        return f"{self.rows}x{self.columns} w{self.num_warps}"


def joined_order(views: Sequence[View]) -> tuple[int, ...]:
    """The axes of the result from the outermost in memory to the innermost.

    Channels lie innermost where those of any input do; otherwise all axes lie as the first input's.
    """
    rank = len(views[0].shape)
    channels_last = (0, *range(2, rank), 1)
    for view in views:
        is_plain = memory_order(view) == tuple(range(rank))
        if rank > 2 and not is_plain and view.strides[1] == 1 and view.shape[1] > 1:
            return channels_last
    return memory_order(views[0])


def run_of(view: View, order: Sequence[int], axis: int) -> Run | None:
    """An input as rows; None where its elements lie otherwise and have to be copied first.

    Args:
        order: of the result's axes in memory.
        axis: along which tensors are put side by side, not negative.
    """
    place = order.index(axis)
    columns = 1
    for inner in reversed(order[place:]):
        if view.shape[inner] != 1 and view.strides[inner] != columns:
            return None
        columns *= view.shape[inner]
    rows, stride = 1, columns
    for outer in reversed(order[:place]):
        if view.shape[outer] == 1:
            continue
        if rows == 1:
            stride = view.strides[outer]
        elif view.strides[outer] != stride * rows:
            return None
        rows *= view.shape[outer]
    return Run(rows, columns, stride)


def copied_run(view: View, order: Sequence[int], axis: int) -> Run:
    """A dense copy of an input, its axes in the order of the result's, as rows."""
    place = order.index(axis)
    columns = math.prod(view.shape[i] for i in order[place:])
    return Run(math.prod(view.shape[i] for i in order[:place]), columns, columns)


def word_bytes_of(runs: Sequence[Run], item_bytes: int) -> int:
    """The largest word that rows and distances are multiples of."""
    sizes = [size * item_bytes for run in runs for size in (run.columns, run.stride)]
    return next(word for word in WORDS if not any(size % word for size in sizes))


def is_aligned(runs: Sequence[Run]) -> bool:
    """Whether rows and distances are multiples of ALIGNMENT."""
    return not any(size % ALIGNMENT for run in runs for size in (run.columns, run.stride))


def kernel_of(count: int, word_bytes: int, config: TileConfig, *, is_aligned: bool) -> KernelSpec:
    """The kernel for `count` inputs.

    Args:
        is_aligned: for inputs of which `is_aligned` holds, in words.
    """
    sizes = [f"s{i}" for i in range(count)] + [f"c{i}" for i in range(count)]
    pointers = ["y", *(f"x{i}" for i in range(count))]
    word = WORDS[word_bytes]
    unused = {f"{letter}{i}": 0 for letter in "xsc" for i in range(count, MAX_INPUTS)}
    types = dict.fromkeys(pointers, f"*{word}") | dict.fromkeys([*sizes, "R", "C"], "i32")
    fixed: dict[str, Any] = {
        **unused,
        "COUNT": count,
        "BLOCK_R": config.rows,
        "BLOCK_C": config.columns,
    }
    return KernelSpec(
        family="concat",
        function="concat",
        signature=tuple((name, types[name]) for name in _all_arguments() if name in types),
        aligned=frozenset([*pointers, *sizes, "C"] if is_aligned else ()),
        constants=tuple(fixed.items()),
        num_warps=config.num_warps,
        num_stages=1,
    )


def fits(spec: KernelSpec, runs: Sequence[Run], item_bytes: int, addresses: Sequence[int]) -> bool:
    """Whether a kernel is right for these inputs.

    Args:
        addresses: of the result, then of every input, in bytes.
    """
    word = word_bytes_of_kernel(spec)
    if word % item_bytes or len(runs) != dict(spec.constants)["COUNT"]:
        return False
    sizes = [size * item_bytes for run in runs for size in (run.columns, run.stride)]
    unit = word * ALIGNMENT if spec.aligned else word
    place = ALIGNMENT if spec.aligned else word
    words = sum(run.columns for run in runs) * item_bytes // word
    is_small = max([words, *(size // word for size in sizes)]) <= MAX_WORDS
    return is_small and not any(size % unit for size in sizes) and not any(x % place for x in addresses)


def word_bytes_of_kernel(spec: KernelSpec) -> int:
    """Of the words that a kernel copies."""
    kind = dict(spec.signature)["y"].removeprefix("*")
    return next(size for size, name in WORDS.items() if name == kind)


def _all_arguments() -> list[str]:
    """Names of the kernel's arguments that are not constants by themselves, in its order."""
    names = [f"{letter}{i}" for letter in "xsc" for i in range(MAX_INPUTS)]
    return ["y", *names, "R", "C"]
