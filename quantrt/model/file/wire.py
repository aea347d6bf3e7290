# SPDX-License-Identifier: Apache-2.0
"""Find the large weights inside an ONNX file without copying them.

An ONNX file is one protobuf message: a sequence of fields, each a tag (field number and wire type) and a
value that is a varint, 4 or 8 bytes, or a length and that many bytes
(https://protobuf.dev/programming-guides/encoding). This walks the fields that lead to the weights,
ModelProto.graph.initializer[i].raw_data, and gives the message without them, for the protobuf library
to parse, together with their places in the file, to be memory-mapped. Lengths are checked against
the file before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from quantrt.errors import ModelError

__all__ = [
    "GRAPH_FIELD",
    "INITIALIZER_FIELD",
    "RAW_DATA_FIELD",
    "TRUNCATED",
    "Skeleton",
    "Span",
    "delimited_header",
    "strip_weights",
]

TRUNCATED = "the file is truncated or damaged"

# Field numbers of onnx.proto3; `onnx.ModelProto.DESCRIPTOR` lists them.
GRAPH_FIELD = 7
INITIALIZER_FIELD = 5
RAW_DATA_FIELD = 9
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10

MIN_STRIPPED_BYTES = 4096
"""Weights of at least one page are mapped; what shape arithmetic reads is smaller and stays inside."""


class Span(NamedTuple):
    """Bytes [start, end) of a file."""

    start: int
    end: int


@dataclass(frozen=True)
class Skeleton:
    """A ModelProto without its large weights.

    Attributes:
        protobuf: the message, its large `raw_data` fields left out.
        weights: place of each, by the initializer's index in the main graph.
    """

    protobuf: bytes
    weights: dict[int, Span]


class _Field(NamedTuple):
    number: int
    wire_type: int
    start: int  # of the tag
    value: int  # start of the value, after any length
    end: int


def strip_weights(data: memoryview) -> Skeleton:
    """The skeleton of the ONNX file whose bytes are `data`.

    Raises:
        ModelError: a field runs past the end of the one it is in, or is no protobuf field at all.
    """
    weights: dict[int, Span] = {}
    pieces: list[bytes] = []
    initializer_count = 0
    for field in _fields(data, 0, len(data)):
        if field.number == GRAPH_FIELD and field.wire_type == _LENGTH_DELIMITED:
            graph, initializer_count = _strip_graph(data, field, weights, initializer_count)
            pieces.append(_delimited(GRAPH_FIELD, graph))
        else:
            pieces.append(bytes(data[field.start : field.end]))
    return Skeleton(b"".join(pieces), weights)


def _strip_graph(
    data: memoryview, graph: _Field, weights: dict[int, Span], initializer_count: int
) -> tuple[bytes, int]:
    pieces: list[bytes] = []
    for field in _fields(data, graph.value, graph.end):
        if field.number == INITIALIZER_FIELD and field.wire_type == _LENGTH_DELIMITED:
            raw = _raw_data(data, field)
            if raw is not None:
                weights[initializer_count] = Span(raw.value, raw.end)
                rest = bytes(data[field.value : raw.start]) + bytes(data[raw.end : field.end])
                pieces.append(_delimited(INITIALIZER_FIELD, rest))
            else:
                pieces.append(bytes(data[field.start : field.end]))
            initializer_count += 1
        else:
            pieces.append(bytes(data[field.start : field.end]))
    return b"".join(pieces), initializer_count


def _raw_data(data: memoryview, tensor: _Field) -> _Field | None:
    """The tensor's raw_data field if it is large and the only one."""
    if tensor.end - tensor.value < MIN_STRIPPED_BYTES:
        return None
    found = [
        field
        for field in _fields(data, tensor.value, tensor.end)
        if field.number == RAW_DATA_FIELD and field.wire_type == _LENGTH_DELIMITED
    ]
    if len(found) != 1 or found[0].end - found[0].value < MIN_STRIPPED_BYTES:
        return None
    return found[0]


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message in bytes [start, end)."""
    position = start
    while position < end:
        tag, value = _varint(data, position, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or wire_type not in (_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32):
            raise ModelError("not a protobuf message", got=f"no field at byte {position}")
        if wire_type == _VARINT:
            field_end = _varint(data, value, end)[1]
        elif wire_type == _LENGTH_DELIMITED:
            length, value = _varint(data, value, end)
            field_end = value + length
        else:
            field_end = value + (8 if wire_type == _FIXED64 else 4)
        if field_end > end:
            raise ModelError(
                TRUNCATED,
                got=f"{end - value} bytes left for a field of {field_end - value} at byte {position}",
            )
        yield _Field(number, wire_type, position, value, field_end)
        position = field_end


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """An unsigned base-128 integer, and the position after it."""
    result = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= end:
            raise ModelError(TRUNCATED, got=f"an unfinished number at byte {position}")
        byte = data[position + index]
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result, position + index + 1
    raise ModelError("not a protobuf message", got=f"no number at byte {position}")


def _delimited(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return delimited_header(number, len(content)) + content


def delimited_header(number: int, size_bytes: int) -> bytes:
    """What stands before the `size_bytes` bytes of a length-delimited field."""
    return _encode_varint(number << 3 | _LENGTH_DELIMITED) + _encode_varint(size_bytes)


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
