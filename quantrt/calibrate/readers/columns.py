# SPDX-License-Identifier: Apache-2.0
"""Arrays whose first axis counts samples, read row by row: in memory, in .npy files and in .npz files.

A file is read as a stream, one row in memory at a time, so a file larger than memory can be calibrated on
and a compressed one cannot claim more than it is made to prove.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from quantrt.calibrate.records import Array, Layout, Record, check_names
from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["ArrayColumn", "Column", "NpyColumn", "column_records", "npy_column", "npz_columns", "row_count"]

MAX_ROW_BYTES = 1 << 31
"""One sample of one input; more than any model of 2-byte dimensions takes, less than memory."""
MAX_HEADER_BYTES = 1 << 16


class Column(Protocol):
    """One named array, wherever it is."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    def rows(self) -> Iterator[Array]:
        """Its rows along axis 0, in order."""

    def whole(self) -> Array:
        """All of it."""


@dataclass(frozen=True)
class ArrayColumn:
    """An array in memory."""

    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.array.shape

    def rows(self) -> Iterator[Array]:
        """Its rows, as views."""
        yield from self.array

    def whole(self) -> Array:
        """The array itself."""
        return self.array


@dataclass(frozen=True)
class NpyColumn:
    """An array in the .npy format, read as a stream each time.

    Attributes:
        where: file and member, for messages.
        open: opens the stream at its beginning.
        header_bytes: where the values start.
    """

    where: str
    open: Callable[[ExitStack], IO[bytes]]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    header_bytes: int

    def rows(self) -> Iterator[Array]:
        """Its rows along axis 0."""
        if self.is_fortran and len(self.shape) > 1:
            yield from self.whole()
            return
        row_shape = self.shape[1:]
        row_bytes = math.prod(row_shape) * self.dtype.itemsize
        with ExitStack() as stack:
            file = self.open(stack)
            _read_exactly(file, self.header_bytes, self.where)
            for _ in range(self.shape[0]):
                yield np.frombuffer(_read_exactly(file, row_bytes, self.where), self.dtype).reshape(row_shape)

    def whole(self) -> Array:
        """All of it in memory."""
        size_bytes = math.prod(self.shape) * self.dtype.itemsize
        with ExitStack() as stack:
            file = self.open(stack)
            _read_exactly(file, self.header_bytes, self.where)
            flat = np.frombuffer(_read_exactly(file, size_bytes, self.where), self.dtype)
        return flat.reshape(self.shape, order="F" if self.is_fortran else "C")


def npy_column(path: Path) -> NpyColumn:
    """The array of a .npy file.

    Raises:
        DataError: the file is damaged or holds Python objects.
    """
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise DataError(f"cannot read '{path}'", got=error.strerror) from error
    return _column(f"'{path}'", lambda stack: stack.enter_context(path.open("rb")), size_bytes)


def npz_columns(path: Path) -> dict[str, NpyColumn]:
    """The arrays of a .npz file, by name.

    Raises:
        DataError: the file is damaged or holds something else than plain arrays.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"cannot read '{path}': it is damaged or no .npz file",
            got=str(error),
            hint=f"`python -m zipfile -t '{path}'`",
        ) from error
    columns = {}
    for info in members:
        name = info.filename.removesuffix(".npy")

        def open_member(stack: ExitStack, member: str = info.filename) -> IO[bytes]:
            return stack.enter_context(stack.enter_context(zipfile.ZipFile(path)).open(member))

        columns[name] = _column(f"'{name}' of '{path}'", open_member, info.file_size)
    return columns


def column_records(
    columns: Mapping[str, Column], specs: Sequence[TensorSpec], layout: Layout, where: str
) -> Iterator[Record]:
    """One record per row, or one for all when the arrays are a single sample.

    An array of the model's own rank has a sample per row, one with an axis more a whole feed per row. When
    the model has no batch axis, an array of the model's own rank is the same for every sample.

    Raises:
        DataError: the arrays' shapes do not fit the inputs, or they hold different numbers of rows.
    """
    inputs, labels = check_names(columns, specs, where)
    extra_axes = _extra_axes(inputs, specs, layout, where)
    if set(extra_axes.values()) == {-1 if layout.is_batched else 0}:
        yield Record(where, {name: column.whole() for name, column in {**inputs, **labels}.items()})
        return
    count = _row_count(inputs, labels, extra_axes, layout, where)
    fixed = {name for name, extra in extra_axes.items() if extra == 0 and not layout.is_batched}
    constant = {name: inputs[name].whole() for name in fixed}
    moving = {name: column.rows() for name, column in {**inputs, **labels}.items() if name not in fixed}
    for index in range(count):
        row = {name: next(rows) for name, rows in moving.items()}
        row |= {name: row[name][None] for name, extra in extra_axes.items() if extra == 0 and name in row}
        yield Record(f"sample {index} of {where}", constant | row)


def row_count(
    columns: Mapping[str, Column], specs: Sequence[TensorSpec], layout: Layout, where: str
) -> int | None:
    """Number of samples; None when rows hold several each.

    Raises:
        DataError: as column_records, before anything is read.
    """
    inputs, labels = check_names(columns, specs, where)
    extra_axes = _extra_axes(inputs, specs, layout, where)
    if set(extra_axes.values()) == {-1 if layout.is_batched else 0}:
        return 1
    count = _row_count(inputs, labels, extra_axes, layout, where)
    return None if layout.is_batched and 1 in extra_axes.values() else count


def _extra_axes(
    inputs: Mapping[str, Column], specs: Sequence[TensorSpec], layout: Layout, where: str
) -> dict[str, int]:
    """Rank of each array less the rank of its input."""
    found = {}
    for spec in specs:
        shape = inputs[spec.name].shape
        found[spec.name] = 0 if spec.shape is None else len(shape) - len(spec.shape)
        if found[spec.name] not in ((-1, 0, 1) if layout.is_batched else (0, 1)):
            raise DataError(
                f"{where} does not fit input '{spec.name}'", got=f"shape {list(shape)}", expected=str(spec)
            )
    if -1 in found.values() and len(set(found.values())) > 1:
        name = min(found, key=lambda item: found[item])
        raise DataError(
            f"array '{name}' of {where} lacks the axis of samples that the others have",
            got=f"shape {list(inputs[name].shape)}",
        )
    return found


def _row_count(
    inputs: Mapping[str, Column],
    labels: Mapping[str, Column],
    extra_axes: Mapping[str, int],
    layout: Layout,
    where: str,
) -> int:
    moving = {name: column for name, column in inputs.items() if layout.is_batched or extra_axes[name] == 1}
    counts = {name: (column.shape or (0,))[0] for name, column in {**moving, **labels}.items()}
    if len(set(counts.values())) > 1:
        raise DataError(
            f"the arrays of {where} hold different numbers of samples",
            got=", ".join(f"{name}: {count}" for name, count in counts.items()),
        )
    return next(iter(counts.values()))


def _column(where: str, open_stream: Callable[[ExitStack], IO[bytes]], size_bytes: int) -> NpyColumn:
    try:
        with ExitStack() as stack:
            shape, is_fortran, dtype, header_bytes = _header(open_stream(stack))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise DataError(f"cannot read {where}: it is damaged or no .npy array", got=str(error)) from error
    if dtype.hasobject:
        raise DataError(
            f"cannot read {where}: it holds Python objects",
            hint="`np.savez(path, **arrays)` of numeric arrays",
        )
    needed = header_bytes + math.prod(shape) * dtype.itemsize
    if needed != size_bytes:
        raise DataError(
            f"cannot read {where}: it is damaged", got=f"{size_bytes} bytes", expected=f"{needed}"
        )
    return NpyColumn(where, open_stream, shape, dtype, is_fortran, header_bytes)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, Fortran order, element type and length of the header, by numpy's own parser."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f".npy format {version[0]}.{version[1]} is for structured arrays")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(file, max_header_size=MAX_HEADER_BYTES)
    if any(size < 0 for size in shape):
        raise ValueError(f"negative size in shape {shape}")
    return shape, is_fortran, dtype, file.tell()


def _read_exactly(file: IO[bytes], size_bytes: int, where: str) -> bytes:
    if size_bytes > MAX_ROW_BYTES:
        raise DataError(
            f"cannot read {where}: one sample is too large",
            got=f"{size_bytes} bytes",
            expected=f"<= {MAX_ROW_BYTES}",
        )
    try:
        data = file.read(size_bytes)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"cannot read {where}: it is damaged", got=str(error)) from error
    if len(data) != size_bytes:
        raise DataError(
            f"cannot read {where}: it ends early", got=f"{len(data)} bytes", expected=f"{size_bytes}"
        )
    return data
