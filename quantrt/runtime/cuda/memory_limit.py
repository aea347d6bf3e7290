# SPDX-License-Identifier: Apache-2.0
"""A bound on what torch takes of a GPU's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from quantrt.errors import UsageError

__all__ = ["device_memory_limit"]

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
