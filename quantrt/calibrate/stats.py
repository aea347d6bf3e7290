# SPDX-License-Identifier: Apache-2.0
"""The artefact of stage 2: what every tapped tensor looked like over the calibration data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quantrt.calibrate.histogram import KEY_COUNT, Histogram
from quantrt.calibrate.sample_hash import add_hashes
from quantrt.calibrate.show import COLUMNS, stats_rows, stats_title
from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file
from quantrt.model.model import Fingerprint
from quantrt.notebook import rich_table, table_html

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Stats", "TensorStats", "load_stats", "save_stats", "stats_notes"]

_MAKE = "`quantrt calibrate MODEL.onnx --calib-data P -o X.ranges` to make one"

FORMAT = "quantrt-ranges"
FORMAT_VERSION = 2
"""From 2 on the checksum is of the header too."""
ARRAYS_ONLY_VERSION = 1
"""Its checksum is of the arrays alone; read, not written."""


@dataclass(frozen=True, eq=False)
class TensorStats:
    """All values one tensor took.

    Attributes:
        counts: int64 [65536], number of values per upper half of the float32 bit pattern.
        lo, hi: exact least and greatest value.
        count: number of values, the sum of `counts`.
    """

    counts: npt.NDArray[np.int64]
    lo: float
    hi: float
    count: int

    @classmethod
    def from_histogram(cls, histogram: Histogram) -> TensorStats:
        """A read-only snapshot of a histogram; without any value its bounds are 0."""
        counts = histogram.counts.copy()
        counts.setflags(write=False)
        lo, hi = (histogram.lo, histogram.hi) if histogram.count else (0.0, 0.0)
        return cls(counts, lo, hi, histogram.count)

    @classmethod
    def from_values(cls, values: npt.ArrayLike) -> TensorStats:
        """The statistics of one array.

        Raises:
            DataError: the array is empty or has a NaN or an infinity.
        """
        array = np.asarray(values, np.float32)
        histogram = Histogram()
        bad = histogram.add(array)
        if bad or not array.size:
            raise DataError(
                "cannot take statistics of these values", got=f"{array.size} values, {bad} not finite"
            )
        return cls.from_histogram(histogram)

    def merge(self, other: TensorStats) -> TensorStats:
        """The statistics of both sets of values together; exact, in any order."""
        if not self.count or not other.count:
            return self if self.count else other
        counts = self.counts + other.counts
        counts.setflags(write=False)
        return TensorStats(counts, min(self.lo, other.lo), max(self.hi, other.hi), self.count + other.count)

    @property
    def is_zero(self) -> bool:
        """Whether every value was zero."""
        return self.lo == 0.0 and self.hi == 0.0

    def to_histogram(self) -> Histogram:
        """A histogram that goes on from here."""
        histogram = Histogram()
        if not self.count:
            return histogram
        histogram.counts[:] = self.counts
        histogram.lo, histogram.hi, histogram.count = self.lo, self.hi, self.count
        return histogram

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorStats):
            return NotImplemented
        bounds = (self.lo, self.hi, self.count) == (other.lo, other.hi, other.count)
        return bounds and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]  # holds an array

    def __repr__(self) -> str:
        bins = np.count_nonzero(self.counts)
        return f"TensorStats(lo={self.lo!r}, hi={self.hi!r}, count={self.count}, {bins}/{KEY_COUNT} bins)"


@dataclass(frozen=True, repr=False)
class Stats:
    """Statistics of a model's tensors over a set of samples.

    Attributes:
        tensors: by value name.
        samples: number of samples seen.
        data_hash: hexadecimal hash of the samples as a multiset: independent of order and batches.
        fingerprint: the model they were run through.
        is_random: the samples were random numbers; ranges from them mean nothing.
        notes: what the user should know, such as a tensor that is always zero.
    """

    tensors: Mapping[str, TensorStats]
    samples: int
    data_hash: str
    fingerprint: Fingerprint
    is_random: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)

    def merge(self, other: Stats) -> Stats:
        """The statistics of both sets of samples: equal, bit for bit, to one run over all of them.

        Raises:
            DataError: they are of different models or of different tensors.
        """
        if self.fingerprint != other.fingerprint:
            raise DataError(
                "cannot merge the statistics of two models",
                got=f"graph {other.fingerprint.graph[:12]}, weights {other.fingerprint.weights[:12]}",
                expected=f"graph {self.fingerprint.graph[:12]}, weights {self.fingerprint.weights[:12]}",
            )
        if self.tensors.keys() != other.tensors.keys():
            only = sorted(self.tensors.keys() ^ other.tensors.keys())
            raise DataError(
                "cannot merge the statistics of different tensors",
                got=f"{len(only)} tensors on one side only, such as '{only[0]}'",
                hint="calibrating both with the same version and options",
            )
        tensors = {name: stats.merge(other.tensors[name]) for name, stats in self.tensors.items()}
        return Stats(
            tensors=tensors,
            samples=self.samples + other.samples,
            data_hash=add_hashes(self.data_hash, other.data_hash),
            fingerprint=self.fingerprint,
            is_random=self.is_random or other.is_random,
            notes=(*stats_notes(tensors), *dict.fromkeys(self.data_notes + other.data_notes)),
        )

    def __repr__(self) -> str:
        graph = self.fingerprint.graph[:12]
        return f"<Stats of {stats_title(self)}, graph {graph}>"

    def __rich__(self) -> Table:
        return rich_table(stats_title(self), COLUMNS, stats_rows(self.tensors))

    def _repr_html_(self) -> str:
        return table_html(stats_title(self), COLUMNS, stats_rows(self.tensors))

    @property
    def data_notes(self) -> tuple[str, ...]:
        """The notes that are about the samples, such as a cast, and not about the tensors."""
        about_tensors = stats_notes(self.tensors)
        return tuple(note for note in self.notes if note not in about_tensors)


def stats_notes(tensors: Mapping[str, TensorStats]) -> tuple[str, ...]:
    """One line per kind of oddity that is no error."""
    zero = [name for name, stats in tensors.items() if stats.is_zero]
    if not zero:
        return ()
    named = ", ".join(f"'{name}'" for name in zero[:3]) + (", ..." if len(zero) > 3 else "")
    return (f"{len(zero)} tensors were zero in every sample and get scale 1: {named}",)


def save_stats(stats: Stats, path: Path | str) -> None:
    """Write statistics as a safetensors file, wholly or not at all.

    Raises:
        DeviceError: the file cannot be written.
    """
    from safetensors.numpy import save  # optional for importers of this module

    parts = [_occupied(tensor) for tensor in stats.tensors.values()]
    arrays = {
        "keys": np.concatenate([keys for keys, _ in parts] or [np.empty(0, np.uint16)]),
        "counts": np.concatenate([counts for _, counts in parts] or [np.empty(0, np.int64)]),
    }
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "samples": stats.samples,
        "data_hash": stats.data_hash,
        "fingerprint": {"graph": stats.fingerprint.graph, "weights": stats.fingerprint.weights},
        "is_random": stats.is_random,
        "notes": stats.data_notes,
        "tensors": [
            {"name": name, "lo": tensor.lo, "hi": tensor.hi, "count": tensor.count, "bins": len(keys)}
            for (name, tensor), (keys, _) in zip(stats.tensors.items(), parts, strict=True)
        ],
    }
    header["sha256"] = _checksum(arrays, header)
    with replace_file(Path(path)) as file:
        file.write(save(arrays, metadata={"quantrt": json.dumps(header)}))


def load_stats(path: Path | str) -> Stats:
    """Read what `save_stats` wrote.

    Raises:
        DataError: the file is missing, damaged, of another kind or from a newer version.
    """
    path = Path(path)
    header, arrays = _read(path)
    if header.get("format") != FORMAT:
        raise DataError(f"cannot read '{path}': it is not a ranges file", hint=_MAKE)
    if header.get("version") not in (ARRAYS_ONLY_VERSION, FORMAT_VERSION):
        raise DataError(
            f"cannot read '{path}': its format is of another version",
            got=str(header.get("version")),
            expected=str(FORMAT_VERSION),
            hint=_MAKE,
        )
    try:
        return _decode(header, arrays)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"cannot read '{path}': the file is damaged", got=str(error), hint=_MAKE) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get("quantrt", "{}")
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        header = json.loads(text)
    except FileNotFoundError as error:
        raise DataError(f"cannot read '{path}': there is no such file", hint=_MAKE) from error
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise DataError(
            f"cannot read '{path}': it is damaged or not a ranges file", got=str(error), hint=_MAKE
        ) from error
    return (header if isinstance(header, dict) else {}), arrays


def _decode(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Stats:
    covered = None if header["version"] == ARRAYS_ONLY_VERSION else header
    if header["sha256"] != _checksum(arrays, covered):
        raise ValueError("the checksum does not match")
    tensors: dict[str, TensorStats] = {}
    start = 0
    for entry in header["tensors"]:
        end = start + int(entry["bins"])
        counts = np.zeros(KEY_COUNT, np.int64)
        counts[arrays["keys"][start:end]] = arrays["counts"][start:end]
        counts.setflags(write=False)
        tensor = TensorStats(counts, float(entry["lo"]), float(entry["hi"]), int(entry["count"]))
        if int(counts.sum()) != tensor.count or counts.min() < 0 or not tensor.lo <= tensor.hi:
            raise ValueError(f"the counts of '{entry['name']}' do not add up")
        tensors[str(entry["name"])] = tensor
        start = end
    return Stats(
        tensors=tensors,
        samples=int(header["samples"]),
        data_hash=f"{int(header['data_hash'], 16):064x}",
        fingerprint=Fingerprint(str(header["fingerprint"]["graph"]), str(header["fingerprint"]["weights"])),
        is_random=bool(header["is_random"]),
        notes=(*stats_notes(tensors), *map(str, header["notes"])),
    )


def _occupied(tensor: TensorStats) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
    keys = np.flatnonzero(tensor.counts)
    return keys.astype(np.uint16), tensor.counts[keys]


def _checksum(arrays: dict[str, npt.NDArray[Any]], header: dict[str, Any] | None) -> str:
    """SHA-256 of the arrays, and of a header but for the field that holds it."""
    digest = hashlib.sha256()
    for name in ("keys", "counts"):
        digest.update(np.ascontiguousarray(arrays[name]).view(np.uint8).data)
    if header is not None:
        covered = {key: value for key, value in header.items() if key != "sha256"}
        digest.update(json.dumps(covered, sort_keys=True).encode())
    return digest.hexdigest()
