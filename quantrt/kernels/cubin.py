# SPDX-License-Identifier: Apache-2.0
"""What machine code takes of a GPU, read from the ELF file that it is.

Section ".nv.info" holds attributes, among them the registers of a thread of every kernel, and the bytes of
its stack, where values lie that found no register: what `cuobjdump --dump-resource-usage` tells (CUDA Binary
Utilities, section 2), without a process for each kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Resources", "resources_of"]

ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
ATTRIBUTE = struct.Struct("<BBH")
PAIR = struct.Struct("<II")
SIZED = 4
"""The form of an attribute that is followed by as many bytes as its last field says."""
STACK_BYTES, REGISTERS = 0x11, 0x2F
"""Kinds of attributes: the number of a symbol, then of its bytes or registers."""


@dataclass(frozen=True)
class Resources:
    """Of one thread, the most of all kernels of a file."""

    registers: int
    stack_bytes: int


def resources_of(cubin: bytes) -> Resources | None:
    """What kernels take; None where the file is not of the form known here."""
    try:
        found = list(_attributes(_section(cubin, b".nv.info")))
    except (struct.error, ValueError, IndexError):
        return None
    registers = {symbol: number for kind, symbol, number in found if kind == REGISTERS}
    stacks = [number for kind, symbol, number in found if kind == STACK_BYTES and symbol in registers]
    return Resources(max(registers.values()), max(stacks, default=0)) if registers else None


def _section(elf: bytes, name: bytes) -> bytes:
    """The content of a section.

    Raises:
        ValueError: there is none.
    """
    header = ELF_HEADER.unpack_from(elf)
    begin, size, count, names = header[6], header[11], header[12], header[13]
    rows = [SECTION_HEADER.unpack_from(elf, begin + number * size) for number in range(count)]
    words = elf[rows[names][4] :][: rows[names][5]]
    for row in rows:
        if words[row[0] :].split(b"\0", 1)[0] == name:
            return elf[row[4] :][: row[5]]
    raise ValueError(f"no section {name.decode()}")


def _attributes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(kind, symbol, number) of those that are such a pair."""
    position = 0
    while position + ATTRIBUTE.size <= len(data):
        form, kind, size = ATTRIBUTE.unpack_from(data, position)
        position += ATTRIBUTE.size
        if form == SIZED:
            if size == PAIR.size:
                yield (kind, *PAIR.unpack_from(data, position))
            position += size
