# SPDX-License-Identifier: Apache-2.0
"""Tensors as the copy engine of compute capability 9.0 reads them: the driver's CUtensorMap, 128 bytes each.

https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TENSOR__MEMORY.html
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from quantrt.kernels.descriptor import ELEMENT_BITS, DescriptorType
from quantrt.runtime.cuda.device.driver import CudaDriver

__all__ = ["MAP_ALIGNMENT", "MAP_BYTES", "Boxes", "TensorMaps", "strides_of"]

MAP_BYTES = 128
MAP_ALIGNMENT = 64

_ELEMENTS = {"i8": 0, "fp8e4nv": 0, "fp16": 6, "bf16": 9}
"""CUtensorMapDataType: UINT8 for all of one byte, FLOAT16, BFLOAT16."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by its period in bytes."""


@dataclass(frozen=True)
class Boxes:
    """A tensor of which copies move other blocks than the kernel's type of it says.

    Attributes:
        block: what one copy moves, with no more elements than the type's; the last axis is as long.
        steps: from one element that it moves to the next, along every axis; 1 along the last.
    """

    tensor: torch.Tensor
    block: tuple[int, ...]
    steps: tuple[int, ...]


class TensorMaps:
    """Memory for the maps of one launch; a map is made anew when its tensor is another one.

    Attributes:
        addresses: of each map.
    """

    def __init__(self, types: tuple[DescriptorType, ...]) -> None:
        self._types = types
        self._memory = ctypes.create_string_buffer(MAP_BYTES * len(types) + MAP_ALIGNMENT)
        start = -(-ctypes.addressof(self._memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        self.addresses = [start + MAP_BYTES * number for number in range(len(types))]
        self._held: list[tuple[object, ...]] = [()] * len(types)

    def put(self, number: int, given: torch.Tensor | Boxes, driver: CudaDriver) -> None:
        """Make map `number` one of this tensor, whose last axis is contiguous.

        Raises:
            DeviceError: the driver refuses it: address and strides must be multiples of 16 bytes.
        """
        kind = self._types[number]
        size = ELEMENT_BITS[kind.element] // 8
        if isinstance(given, Boxes):
            tensor, block, steps = given.tensor, given.block, given.steps
        else:
            tensor, block, steps = given, _copied(kind, size), (1,) * given.dim()
        strides = strides_of(tensor)
        key = tensor.data_ptr(), tuple(tensor.shape), strides, block, steps
        if self._held[number] == key:
            return
        self._held[number] = ()
        driver.encode_tiled(
            self.addresses[number],
            element=_ELEMENTS[kind.element],
            address=tensor.data_ptr(),
            shape=tuple(tensor.shape),
            strides_bytes=tuple(stride * size for stride in strides),
            block=block,
            steps=steps,
            swizzle=_SWIZZLES[kind.swizzle_bytes],
        )
        self._held[number] = key


def _copied(kind: DescriptorType, size: int) -> tuple[int, ...]:
    """What one instruction copies: rows at most as long as the swizzle; longer ones are several copies."""
    if not kind.swizzle_bytes:
        return kind.block
    return (*kind.block[:-1], min(kind.block[-1], kind.swizzle_bytes // size))


def strides_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """In elements; of an axis with one element, whose stride says nothing, what it would be without gaps."""
    strides: list[int] = []
    dense = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        strides.insert(0, stride if size > 1 else dense)
        dense = strides[0] * size
    return tuple(strides)
