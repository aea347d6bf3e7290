# SPDX-License-Identifier: Apache-2.0
"""Calibration caches as TensorRT writes them, and those of ONNX Runtime: its TensorRT provider's and its own.

    TRT-8601-EntropyCalibration2
    input: 3c010a14
    /layer1/conv1/Conv_output_0: 3d65992f

The first line holds TensorRT's version and the calibrator; each further line a tensor's name and its scale,
the bits of a float32 in hexadecimal, most significant digit first. A tensor ranges over scale * [-127, 127].
Names may hold colons and spaces, so the last colon counts (NVIDIA TensorRT, samples/common/sampleEngines.cpp,
`readCalibrationCache`). The format says nothing of the model it was made for; see `cache_origin`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from quantrt.calibrate.caches.origin import Origin, read_origin, write_origin
from quantrt.calibrate.caches.ort_json import JSON_TABLE, SYMMETRIC_NOTE, read_json_table
from quantrt.calibrate.caches.ort_table import TABLE, TEXT_TABLE, read_table, read_text_table, table_bytes
from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file

__all__ = [
    "DEFAULT_HEADER",
    "SYMMETRIC_MAX",
    "TABLE_SUFFIX",
    "TrtCache",
    "cache_text",
    "check_header",
    "parse_cache",
    "read_cache",
    "why_invalid",
    "write_cache",
]

DEFAULT_HEADER = "TRT-8601-EntropyCalibration2"
"""Of TensorRT 8.6.1 and the calibrator that trtexec --calib reads with."""

TABLE_SUFFIX = ".flatbuffers"

_MAKE = "`quantrt calibrate MODEL.onnx --calib-data P -o calibration.cache` to make one"

MAX_CACHE_BYTES = 1 << 28
"""A larger file is no cache: a tensor takes a line."""

HEADER = re.compile(r"TRT-(\d{1,9})-([A-Za-z]\w*)")
HEX = re.compile(r"[0-9a-fA-F]{1,8}")
SYMMETRIC_MAX = 127
FIRST_LONG_VERSION = 100000
"""From TensorRT 10 on the version is major * 10000 + minor * 100 + patch, before it major * 1000 + ..."""

AFTER_FUSION = ("EntropyCalibration", "LegacyCalibration")
"""Calibrators that see the layers fused for one device (TensorRT developer guide 8, "Calibration")."""


@dataclass(frozen=True)
class TrtCache:
    """Scales of tensors, as a calibrator left them.

    Attributes:
        name: what to call it in messages, such as its path.
        header: the first line, such as "TRT-8601-EntropyCalibration2"; what it is of ONNX Runtime's tables.
        scales: by tensor, in the order of the file; float32 numbers above zero.
        invalid: tensors whose scale cannot be used -> why.
        origin: what is known of the model and the data it was made of; None for most.
        notes: what a user should know, one sentence each.
    """

    name: str
    header: str
    scales: Mapping[str, float]
    invalid: Mapping[str, str] = field(default_factory=dict)
    origin: Origin | None = None
    notes: tuple[str, ...] = ()

    @property
    def algorithm(self) -> str | None:
        """The calibrator, such as "EntropyCalibration2"; None for ONNX Runtime's tables."""
        found = HEADER.fullmatch(self.header)
        return found.group(2) if found else None

    @property
    def version(self) -> str | None:
        """TensorRT's version, such as "8.6.1"; None for ONNX Runtime's tables."""
        found = HEADER.fullmatch(self.header)
        if found is None:
            return None
        number = int(found.group(1))
        major = 10000 if number >= FIRST_LONG_VERSION else 1000
        return f"{number // major}.{number % major // 100}.{number % 100}"


def read_cache(path: Path | str) -> TrtCache:
    """The scales in a calibration cache of TensorRT, of ONNX Runtime's TensorRT provider or of its quantizer.

    Raises:
        DataError: there is no such file, it is neither of them, or it is damaged; names the line.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_CACHE_BYTES:
            raise DataError(
                f"cannot read '{path}': it is too large for a calibration cache",
                got=f"{size} bytes",
                expected=f"at most {MAX_CACHE_BYTES}",
            )
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(
            f"cannot read '{path}': there is no such file",
            hint=_MAKE,
        ) from error
    except OSError as error:
        raise DataError(f"cannot read '{path}'", got=error.strerror) from error
    return parse_cache(data, str(path), read_origin(path))


def parse_cache(data: bytes, name: str, origin: Origin | None = None) -> TrtCache:
    """The scales in the bytes of a file called `name`.

    Raises:
        DataError: as for `read_cache`.
    """
    if not data.strip():
        raise _empty(name)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(
            f"cannot read '{name}': it is UTF-16 text",
            expected="UTF-8",
            hint=f"`iconv -f UTF-16 -t UTF-8 '{name}' -o utf8.cache`",
        )
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip().startswith(b"TRT-"):
        header, entries = _parse_text(data, name)
    elif data.lstrip().startswith(b"{"):
        header, entries = JSON_TABLE, _from_amax(read_json_table(data, name))
    elif b"\0" in data:
        header, entries = TABLE, _from_amax(read_table(data, name))
    else:
        header, entries = TEXT_TABLE, _from_amax(_read_headless(data, name))
    if not entries:
        raise DataError(f"cannot read '{name}': it names no tensor", got=header, hint=_MAKE)
    reasons = {tensor: reason for tensor, scale in entries.items() if (reason := why_invalid(scale))}
    scales = {tensor: float(scale) for tensor, scale in entries.items() if tensor not in reasons}
    notes = [SYMMETRIC_NOTE] if header == JSON_TABLE else []
    if origin is not None and not origin.is_of(scales):
        notes.append(f"'{name}' was changed after it was written: what stands beside it does not count")
        origin = None
    if header.endswith(AFTER_FUSION):
        notes.append(f"{header.rpartition('-')[2]} ran on fused layers: names may be of one device alone")
    return TrtCache(name, header, scales, reasons, origin, tuple(notes))


def write_cache(cache: TrtCache, path: Path) -> None:
    """Write a cache, and what it was made of beside it, each wholly or not at all.

    The suffix ".flatbuffers" gives a table of ONNX Runtime's TensorRT provider, any other TensorRT's text.

    Raises:
        DataError: as for `cache_text`.
        DeviceError: a file cannot be written.
    """
    data = cache_text(cache.scales, cache.header).encode()
    if path.suffix == TABLE_SUFFIX:
        data = table_bytes({tensor: scale * SYMMETRIC_MAX for tensor, scale in cache.scales.items()})
    if cache.origin is not None:
        write_origin(cache.origin, path)
    with replace_file(path) as file:
        file.write(data)


def cache_text(scales: Mapping[str, float], header: str = DEFAULT_HEADER) -> str:
    """A cache that TensorRT, ONNX Runtime and Model-Optimizer read.

    Raises:
        DataError: a scale that is no positive float32, or a name that a line cannot hold; names the tensor.
    """
    lines = [check_header(header)]
    for tensor, scale in scales.items():
        reason = why_invalid(np.float32(scale))
        if reason is not None or not tensor.strip() or not tensor.isprintable():
            raise DataError(
                f"cannot write the scale of '{tensor}'", got=reason or "a name that is not one line of text"
            )
        lines.append(f"{tensor}: {struct.pack('>f', scale).hex()}")
    return "\n".join(lines) + "\n"


def check_header(header: str) -> str:
    """The header, if it has the form of one.

    Raises:
        DataError: it has not.
    """
    if not HEADER.fullmatch(header):
        raise DataError(
            f"'{header}' is no header of a calibration cache",
            expected="TRT-<version>-<calibrator>",
            hint=f"--cache-header {DEFAULT_HEADER}, or TRT-100300-EntropyCalibration2",
        )
    return header


def why_invalid(scale: np.float32) -> str | None:
    """What is wrong with a scale; None for one that can be used."""
    if np.isnan(scale):
        return "not a number"
    if np.isinf(scale):
        return "infinite"
    if scale <= 0:
        return "zero" if scale == 0 else f"negative ({scale:.4g})"
    if scale < np.finfo(np.float32).tiny:
        return f"too small for float32 arithmetic ({scale:.4g})"
    if not scale <= np.finfo(np.float32).max / SYMMETRIC_MAX:
        return f"its range is beyond float32 ({scale:.4g} * {SYMMETRIC_MAX})"
    return None


def _parse_text(data: bytes, name: str) -> tuple[str, dict[str, np.float32]]:
    """Header and scales of TensorRT's own text."""
    lines = list(_lines(data, name))
    number, header = lines[0]
    if not HEADER.fullmatch(header.strip()):
        raise _bad_line(name, number, header, "TRT-<version>-<calibrator>")
    is_cut = not data.endswith((b"\n", b"\r"))
    entries: dict[str, np.float32] = {}
    for number, line in lines[1:]:
        tensor, _, digits = line.rpartition(":")
        digits = digits.strip()
        if not tensor.strip() or not HEX.fullmatch(digits):
            raise _bad_line(name, number, line, "<tensor>: <8 hexadecimal digits>")
        if len(digits) < 8 and is_cut and number == lines[-1][0]:
            raise _bad_line(name, number, line, "8 digits: the file is cut off")
        (scale,) = struct.unpack(">f", bytes.fromhex(digits.zfill(8)))
        _put(entries, tensor, np.float32(scale), name, number)
    return header.strip(), entries


def _empty(name: str) -> DataError:
    return DataError(f"cannot read '{name}': it is empty", hint=_MAKE)


def _put(entries: dict[str, np.float32], tensor: str, scale: np.float32, name: str, number: int) -> None:
    before = entries.setdefault(tensor, scale)
    if before.tobytes() != scale.tobytes():
        raise DataError(
            f"cannot read '{name}': line {number} gives '{tensor}' another scale than a line before",
            got=f"{float(before):.6g} and {float(scale):.6g}",
            hint=f"`sed -i {number}d '{name}'` where the line before holds",
        )


def _lines(data: bytes, name: str) -> Iterator[tuple[int, str]]:
    """Number and text of every line that is not blank, without blanks at its end."""
    for number, raw in enumerate(data.splitlines(), 1):
        try:
            line = raw.decode("utf-8").rstrip()
        except UnicodeDecodeError as error:
            raise _bad_line(name, number, repr(raw), "UTF-8 text") from error
        if line and not line.isprintable():
            raise _bad_line(name, number, line, "printable text")
        if line:
            yield number, line


def _bad_line(name: str, number: int, line: str, expected: str) -> DataError:
    shown = line if len(line) <= 80 else f"{line[:77]}..."
    message = f"cannot read '{name}': line {number} is no line of a calibration cache"
    return DataError(
        message, got=repr(shown), expected=expected, hint=f"`sed -n {number}p '{name}'`, or {_MAKE}"
    )


def _read_headless(data: bytes, name: str) -> dict[str, float]:
    """ONNX Runtime's text; TensorRT's without its first line is named as what it is."""
    lines = list(_lines(data, name))
    if not lines:
        raise _empty(name)
    number, first = lines[0]
    if HEX.fullmatch(first.rpartition(":")[2].strip()) and ":" in first:
        raise DataError(
            f"cannot read '{name}': line {number} should say which calibrator wrote it",
            got=repr(first),
            expected="a first line such as " + DEFAULT_HEADER,
            hint=f"`sed -i '{number}i {DEFAULT_HEADER}' '{name}'`",
        )
    return read_text_table(lines, name)


def _from_amax(entries: Mapping[str, float]) -> dict[str, np.float32]:
    """Scales of tensors whose largest magnitude is known: amax / 127, rounded to float32 once."""
    with np.errstate(over="ignore"):
        return {tensor: np.float32(amax / SYMMETRIC_MAX) for tensor, amax in entries.items()}
