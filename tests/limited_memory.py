# SPDX-License-Identifier: Apache-2.0
"""The CPU's memory in the part of a small GPU's: what torch takes is counted, and refused beyond a bound."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from weakref import finalize

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from quantrt.runtime.cuda.device import memory_limit
from quantrt.runtime.cuda.steps import assets
from quantrt.runtime.cuda.tensors import tensor_on

__all__ = ["LimitedMemory", "limited_memory"]


class LimitedMemory(TorchFunctionMode):
    """Counts the memory behind all tensors that torch makes while it is entered.

    Attributes:
        peak_bytes: the most that was alive at a time.
        refusals: how often there was no room.
    """

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self.limit_bytes, self.alive_bytes, self.peak_bytes, self.refusals = limit_bytes, 0, 0, 0
        self._tensors: Counter[int] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        place, size_bytes = storage.data_ptr(), storage.nbytes()
        if not self._tensors[place] and self.alive_bytes + size_bytes > self.limit_bytes:
            self.refusals += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size_bytes} bytes.")
        self.alive_bytes += 0 if self._tensors[place] else size_bytes
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)
        self._tensors[place] += 1
        finalize(tensor, self._free, place, size_bytes)

    def _free(self, place: int, size_bytes: int) -> None:
        self._tensors[place] -= 1
        self.alive_bytes -= 0 if self._tensors[place] else size_bytes


@contextmanager
def limited_memory() -> Iterator[list[LimitedMemory]]:
    """Builds that ask for a limit get one on the CPU; the list has what became of each."""
    found: list[LimitedMemory] = []

    @contextmanager
    def limit(limit_mb: int) -> Iterator[None]:
        found.append(LimitedMemory(limit_mb << 20))
        with found[-1]:
            yield

    def on_device(array: np.ndarray) -> torch.Tensor:
        return tensor_on(array).clone()  # a GPU has memory of its own

    with (
        patch.object(memory_limit, "device_memory_limit", limit),
        patch.object(assets, "tensor_on", on_device),
    ):
        yield found
