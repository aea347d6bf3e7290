# SPDX-License-Identifier: Apache-2.0
"""One kernel to compile, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CompiledKernel", "KernelSpec", "pointers_of"]


@dataclass(frozen=True)
class KernelSpec:
    """A Triton kernel with everything fixed but its arguments.

    Attributes:
        family: folder under quantrt/kernels; its triton_kernel.py has the function.
        function: name of the @triton.jit function.
        signature: (argument name, Triton type) of the arguments that are passed at launch, in order, such as
            ("x_ptr", "*fp16"), ("M", "i32"), ("scale", "fp32").
        aligned: names of the pointers and integers among them that are multiples of 16.
        constants: (name, value) of the tl.constexpr arguments; values are numbers, strings, bools or nested
            tuples of them.
        num_warps, num_stages: as Triton's.
        is_exact: no fused multiply-add: float32 results equal the reference bit for bit.
    """

    family: str
    function: str
    signature: tuple[tuple[str, str], ...]
    aligned: frozenset[str]
    constants: tuple[tuple[str, Any], ...]
    num_warps: int = 4
    num_stages: int = 3
    is_exact: bool = True


@dataclass(frozen=True)
class CompiledKernel:
    """Machine code of one kernel for one or more compute capabilities.

    Attributes:
        spec: what it was compiled from.
        symbol: of the function in the cubin.
        cubins: machine code by compute capability, such as 90.
        shared_bytes: dynamic shared memory by compute capability.
        extra_pointers: null pointers that the compiler expects after the arguments (its scratch memory).
        registers, spills: per thread, where the compiler said; for reports.
        overlaps: machine code of compute capability 9.0 and later may be launched before what is ahead of it
            has ended; see kernels/overlap.py.
    """

    spec: KernelSpec
    symbol: str
    cubins: Mapping[int, bytes]
    shared_bytes: Mapping[int, int]
    extra_pointers: int = 0
    registers: int = 0
    spills: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    overlaps: bool = False


def pointers_of(types: Mapping[str, str]) -> frozenset[str]:
    """Names of the arguments that are pointers, by their Triton types."""
    return frozenset(name for name, kind in types.items() if kind.startswith("*"))
