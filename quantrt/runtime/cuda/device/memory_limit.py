# SPDX-License-Identifier: Apache-2.0
"""Bounds on what torch takes of a GPU's memory, and what is said beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from quantrt.errors import DeviceError, UsageError

__all__ = ["device_memory_limit", "enough_memory", "room_limit"]

MB = 1 << 20


@contextmanager
def device_memory_limit(limit_mb: int) -> Iterator[None]:
    """Let torch take no more than this of the current GPU while the block runs; beyond it is out of memory.

    What torch keeps for later counts too, and is given back before anything is refused. Contexts of the
    driver, machine code and other processes do not count.

    Raises:
        UsageError: the GPU has less.
    """
    total_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if limit_mb * MB > total_bytes:
        raise UsageError(
            "cannot take so much of the GPU's memory",
            got=f"{limit_mb} MB",
            expected=f"at most {total_bytes // MB} MB",
        )
    torch.cuda.set_per_process_memory_fraction(limit_mb * MB / total_bytes)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@contextmanager
def room_limit(room_bytes: int) -> Iterator[None]:
    """Let torch take no more than so much beyond what it has of the current GPU while the block runs.

    What chooses by the memory that is free would take all there is, such as cuDNN's search for the fastest
    algorithm: it holds the largest workspace of any while it times them, and transforms of whole images want
    109 GB for a convolution of 1280 to 1280 channels over 64 x 64 pixels in float32.
    """
    total_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    before = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(
        min(before, (torch.cuda.memory_reserved() + room_bytes) / total_bytes)
    )
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before)


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Say what there was no room for, where torch says that there was none.

    Raises:
        DeviceError: out of memory in the block.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"the GPU has no room {what}",
            got=str(error).partition(". ")[0],
            hint="a smaller --batch, more --device-memory, or freeing memory on the GPU",
        ) from error
