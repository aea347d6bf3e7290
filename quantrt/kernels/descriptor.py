# SPDX-License-Identifier: Apache-2.0
"""Arguments of kernels that are tensors as the copy engine of compute capability 9.0 reads them: in blocks.

A kernel's signature names them as Triton does: element type, block, and how a block lies in shared memory.
A launch passes the 128 bytes that the driver makes of a tensor and the block, then the tensor's shape and
strides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ELEMENT_BITS", "DescriptorType", "descriptor_type_of", "parameters_of"]

ELEMENT_BITS = {"i8": 8, "fp8e4nv": 8, "fp16": 16, "bf16": 16}
"""Triton's element types that descriptors here have."""

_PATTERN = re.compile(
    r"tensordesc<(\w+)\[(\d+(?:, \d+)*)\],NVMMASharedLayout\(swizzle_byte_width=(\d+),.*\)>"
)


@dataclass(frozen=True)
class DescriptorType:
    """A descriptor as a kernel is compiled for it.

    Attributes:
        element: Triton's name of a type in ELEMENT_BITS.
        block: what one copy moves, in elements, the contiguous axis last.
        swizzle_bytes: period in which 16-byte pieces of a block's rows change places: 0, 32, 64 or 128.
    """

    element: str
    block: tuple[int, ...]
    swizzle_bytes: int

    def __str__(self) -> str:
        layout = (
            f"NVMMASharedLayout(swizzle_byte_width={self.swizzle_bytes}, "
            f"element_bitwidth={ELEMENT_BITS[self.element]}, rank={len(self.block)})"
        )
        return f"tensordesc<{self.element}[{', '.join(map(str, self.block))}],{layout}>"


def descriptor_type_of(kind: str) -> DescriptorType | None:
    """The descriptor of an argument's type; None for any other type."""
    found = _PATTERN.fullmatch(kind)
    if found is None or found.group(1) not in ELEMENT_BITS:
        return None
    element, block, swizzle_bytes = found.groups()
    return DescriptorType(element, tuple(map(int, block.split(", "))), int(swizzle_bytes))


def parameters_of(kind: str) -> int:
    """How many parameters of the machine code an argument of this type is."""
    descriptor = descriptor_type_of(kind)
    return 1 if descriptor is None else 1 + 2 * len(descriptor.block)
