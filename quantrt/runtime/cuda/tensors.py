# SPDX-License-Identifier: Apache-2.0
"""Tensors from types by name, shapes and memory formats, and from numpy arrays in place."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import torch_type

__all__ = ["empty_tensor", "is_dense", "shaped", "tensor_on", "torch_dtype"]


def torch_dtype(name: str) -> torch.dtype:
    """The torch type that numpy calls `name`.

    Raises:
        ModelError: there is none.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ModelError("an element type that torch does not have", got=f"'{name}'")
    return found


def empty_tensor(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device, *, channels_last: bool = False
) -> torch.Tensor:
    """New memory, contents undefined; with `channels_last` axis 1 lies innermost."""
    if not channels_last or len(shape) < 3:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    return torch.empty(_channels_inside(shape), dtype=dtype, device=device).movedim(-1, 1)


def shaped(
    memory: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, *, channels_last: bool = False
) -> torch.Tensor:
    """The first bytes of `memory`, one axis of uint8, as a tensor like those of `empty_tensor`."""
    elements = memory[: math.prod(shape) * dtype.itemsize].view(dtype)
    if not channels_last or len(shape) < 3:
        return elements.view(tuple(shape))
    return elements.view(_channels_inside(shape)).movedim(-1, 1)


def is_dense(x: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gap or overlap, in whatever order of axes."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size == 0:
            return True
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def tensor_on(array: np.ndarray) -> torch.Tensor:
    """A tensor on the array's memory, which may not be written to.

    torch warns about arrays that are read-only, such as those of a mapped file; this way it does not know.
    An array that is not contiguous is copied.

    Raises:
        ModelError: text, or another type that torch does not have.
    """
    flags = array.flags
    if flags.writeable and flags.c_contiguous and array.dtype.isbuiltin == 1 and array.dtype.kind in "biufc":
        return torch.from_numpy(array)
    if array.dtype.kind in "OUST":
        raise ModelError("text cannot be a tensor", got=str(array.dtype))
    dtype = torch_type(ir.DataType.from_numpy(array.dtype.newbyteorder("=")))
    if array.size == 0:
        return torch.empty(array.shape, dtype=dtype)
    whole = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    memory = (ctypes.c_char * whole.nbytes).from_address(whole.ctypes.data)
    memory.owner = whole  # type: ignore[attr-defined]  # lives as long as the tensor
    return torch.frombuffer(memory, dtype=dtype).view(array.shape)


def _channels_inside(shape: Sequence[int]) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1])
