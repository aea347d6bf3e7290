# SPDX-License-Identifier: Apache-2.0
"""Kernels that are put in place while the one before them still runs, from compute capability 9.0 on.

A launch costs a few microseconds between two kernels of which the second needs what the first one stores. A
kernel that waits in its first instruction until all before it is done and visible can be launched earlier, as
soon as every block of the one before has begun: its blocks take the room that is left over and are there when
the wait is over (CUDA C++ programming guide, "Programmatic Dependent Launch and Synchronization"; PTX ISA,
griddepcontrol). Nothing is read or written before the wait, so that no kernel needs to know of it; where a
kernel is launched in the ordinary way, both instructions do nothing.

A kernel that has much to prepare says itself where it waits, by `await_kernels_before`: ahead of that it may
set up what is its own, and read weights, which no kernel writes.

Kernels over images are launched in the ordinary way. One that waits has let the next one be launched already,
so that a chain of small ones waits together, and blocks lie where the others left room: several of a kernel
to a multiprocessor, beside idle ones. ResNet-50 with one image had ten waiting at a time, and took 0.319 ms
in int8 where it had taken 0.200 (docs/results/cuda-h200.md).
"""

from __future__ import annotations

import re

__all__ = ["HERE", "IMAGE_FAMILIES", "OVERLAP_CAPABILITY", "has_wait", "may_overlap", "with_wait"]

OVERLAP_CAPABILITY = 90

IMAGE_FAMILIES = frozenset(
    (
        "borders",
        "conv2d",
        "conv_hopper",
        "conv_transpose",
        "depthwise",
        "depthwise_patches",
        "fold_pixels",
        "pool",
        "resize",
        "thin_conv2d",
    )
)
"""Kernels over images, by their folders."""

WAIT = "griddepcontrol.wait;"
LET_NEXT = "griddepcontrol.launch_dependents;"
HERE = "// kernels before are done here"
"""Where a kernel waits that says so itself: a comment, for it may be launched in the ordinary way."""

_ENTRY = re.compile(r"(\.entry\s+\w+\s*\([^)]*\)[^{]*\{)")


def may_overlap(family: str, capability: int) -> bool:
    """Whether kernels of a family wait and let the next one be launched, on a compute capability."""
    return capability >= OVERLAP_CAPABILITY and family not in IMAGE_FAMILIES


def with_wait(ptx: str) -> str:
    """A kernel's PTX that lets the next kernel be launched, then waits for those before it."""
    if HERE in ptx:
        return _ENTRY.sub(rf"\1\n\t{LET_NEXT}", ptx, count=1).replace(HERE, WAIT)
    return _ENTRY.sub(rf"\1\n\t{LET_NEXT}\n\t{WAIT}", ptx, count=1)


def has_wait(ptx: str) -> bool:
    """Whether `with_wait` was here."""
    return WAIT in ptx
