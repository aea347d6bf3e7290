# SPDX-License-Identifier: Apache-2.0
"""Tables of ONNX Runtime's TensorRT provider: tensor -> largest magnitude, as text or as flatbuffers.

The schema, two tables, is that of onnxruntime/core/flatbuffers/ort_trt_int8_cal_table.fbs:

    table TrtTable { dict: [KeyValue]; }      table KeyValue { key: string (key); value: string; }

Layout (flatbuffers.dev, "FlatBuffer Internals"): a table begins with the distance back to its list of field
offsets; tables, vectors and strings are pointed at by distances forward; everything is little-endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping

from quantrt.errors import DataError

__all__ = ["TABLE", "TEXT_TABLE", "read_table", "read_text_table", "table_bytes"]

TABLE = "ONNX Runtime calibration table (flatbuffers)"
TEXT_TABLE = "ONNX Runtime calibration table (text)"


def read_table(data: bytes, name: str) -> dict[str, float]:
    """The entries of a flatbuffers file.

    Raises:
        DataError: it is none, is damaged, or gives a tensor two ranges.
    """
    try:
        table = _forward(data, 0)
        entries = _field(data, table, 0)
        if entries is None:
            raise ValueError("it holds no entries")
        vector = _forward(data, entries)
        count = _unsigned(data, vector)
        if count * 4 > len(data) - vector - 4:
            raise ValueError(f"{count} entries do not fit in {len(data)} bytes")
        found: dict[str, float] = {}
        for index in range(count):
            pair = _forward(data, vector + 4 + 4 * index)
            key, value = (_string(data, _field(data, pair, slot)) for slot in (0, 1))
            if not key or not key.isprintable():
                raise ValueError(f"entry {index} has no name")
            amax = _number(value, f"entry {index}, '{key}'")
            if _is_other(found.setdefault(key, amax), amax):
                raise ValueError(f"entry {index} gives '{key}' {amax:g}, one before it {found[key]:g}")
    except (ValueError, struct.error) as error:
        raise DataError(
            f"cannot read '{name}': it is no calibration cache, or damaged",
            got=str(error),
            expected="TensorRT's text, or a table of ONNX Runtime's TensorRT provider",
        ) from error
    return found


def read_text_table(lines: Iterable[tuple[int, str]], name: str) -> dict[str, float]:
    """The entries of numbered lines "<tensor> <largest magnitude>".

    Raises:
        DataError: a line is something else; names it.
    """
    found: dict[str, float] = {}
    for number, line in lines:
        tensor, _, value = line.rpartition(" ")
        try:
            if not tensor:
                raise ValueError("no name and number")
            amax = _number(value, "the line")
        except ValueError as error:
            raise DataError(
                f"cannot read '{name}': line {number} is no line of a calibration cache",
                got=repr(line if len(line) <= 80 else f"{line[:77]}..."),
                expected="a first line TRT-<version>-<calibrator>, or '<tensor> <largest magnitude>' alone",
            ) from error
        if _is_other(found.setdefault(tensor, amax), amax):
            raise DataError(
                f"cannot read '{name}': line {number} gives '{tensor}' a second range",
                got=f"{found[tensor]:g} and {amax:g}",
                hint=f"`sed -i {number}d '{name}'` where the line before holds",
            )
    return found


def table_bytes(entries: Mapping[str, float]) -> bytes:
    """A flatbuffers file of these entries, keys sorted as the schema wants them."""
    keys = sorted(entries, key=str.encode)
    # Root, its field offsets, its table, and the vector of pairs; then the field offsets of every pair.
    head = struct.pack("<I4HiII", 12, 6, 8, 4, 0, 8, 4, len(keys))
    fields = len(head) + 4 * len(keys)
    pairs = bytearray(struct.pack("<4H", 8, 12, 4, 8))
    distances = bytearray()
    for index, key in enumerate(keys):
        place = fields + len(pairs)
        distances += struct.pack("<I", place - (len(head) + 4 * index))
        first, second = _text(key), _text(repr(float(entries[key])))
        pairs += struct.pack("<iII", place - fields, 8, 4 + len(first)) + first + second
    return head + bytes(distances) + bytes(pairs)


def _text(text: str) -> bytes:
    """A string: its length, its bytes, a zero, and what fills four bytes up."""
    data = text.encode()
    return struct.pack("<I", len(data)) + data + bytes(4 - len(data) % 4)


def _is_other(first: float, second: float) -> bool:
    """Whether two ranges of one tensor differ; NaN is as NaN."""
    return first != second and not (math.isnan(first) and math.isnan(second))


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{where} has no number but {text[:40]!r}") from error


def _unsigned(data: bytes, place: int) -> int:
    if not 0 <= place <= len(data) - 4:
        raise ValueError(f"an offset leads to {place}, behind the {len(data)} bytes of the file")
    return int(struct.unpack_from("<I", data, place)[0])


def _forward(data: bytes, place: int) -> int:
    """Where the distance that stands at `place` leads."""
    return place + _unsigned(data, place)


def _field(data: bytes, table: int, slot: int) -> int | None:
    """Where a field of a table stands; None for one that is absent."""
    _unsigned(data, table)
    fields = table - int(struct.unpack_from("<i", data, table)[0])
    if not 0 <= fields <= len(data) - 4:
        raise ValueError(f"a table at {table} has no list of fields")
    (size,) = struct.unpack_from("<H", data, fields)
    entry = 4 + 2 * slot
    if entry + 2 > size:
        return None
    (distance,) = struct.unpack_from("<H", data, fields + entry)
    return table + distance if distance else None


def _string(data: bytes, place: int | None) -> str:
    if place is None:
        return ""
    start = _forward(data, place)
    length = _unsigned(data, start)
    if length > len(data) - start - 4:
        raise ValueError(f"a text of {length} bytes at {start} does not fit in the file")
    return data[start + 4 : start + 4 + length].decode("utf-8")
