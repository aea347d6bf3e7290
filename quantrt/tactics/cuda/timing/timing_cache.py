# SPDX-License-Identifier: Apache-2.0
"""Timings that are kept from one build to the next: JSON with named fields.

    {"format": "quantrt timing cache", "version": 2,
     "devices": [{"environment": {"gpu": "NVIDIA H200", "driver": "570.133", ...},
                  "workloads": {key: {"formula": "Gemm", "weight": "int8[512, 512]",
                                      "inputs": ["int8[64, 512]"], "outputs": ["int8"],
                                      "tactics": {name: {"median_us": 9.5, "p20_us": 9.4, "p80_us": 9.7,
                                                         "samples": 30},
                                                  name: {"rejected": "output 0 differs ..."}}}}}]}

GPUs that share a file have their timings side by side, and so have machines whose driver or libraries differ.
Those of other machines say nothing here: they are ignored, and a note names the field that differs. What
other sources of QuantRT took on the same kind of GPU is replaced. Version 1 was of one device, without the
list. The same timings give the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quantrt.errors import DataError
from quantrt.gpu import gpu_sold_as
from quantrt.ir.atomic import replace_file
from quantrt.tactics.cuda.timing.timing import Timing

__all__ = ["Entry", "TimingCache", "add_timings", "load_timing_cache", "merge"]

FORMAT = "quantrt timing cache"
VERSION = 2
VERSIONS = (1, VERSION)
DEVICE = ("gpu", "capability")
"""Fields that tell one GPU's timings from another's."""
OF_THE_SOURCES = ("quantrt", "sources")
"""Fields that differ where QuantRT was changed, so that nobody needs the timings of before."""
OF_THE_MACHINE = ("driver", "cuda", "torch", "cudnn", "quantrt")
"""Fields that need not agree where the GPU is not; "sources" tells whether kernels are the same."""
MAX_FILE_BYTES = 2**28
TIMES = ("median_us", "p20_us", "p80_us")


@dataclass(frozen=True)
class Entry:
    """What is known of one workload.

    Attributes:
        formula: its class.
        weight: type and shape; empty without one. This and the next two are for readers.
        inputs, outputs: element types, and shapes of the inputs.
        tactics: by name, a timing, or why the tactic cannot be used.
    """

    formula: str
    weight: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tactics: Mapping[str, Timing | str]


@dataclass(frozen=True)
class TimingCache:
    """Timings taken in one environment.

    Attributes:
        environment: everything that changes times, by name.
        entries: by the key of the workload.
        notes: what was ignored, and why.
    """

    environment: Mapping[str, str]
    entries: Mapping[str, Entry] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_timing_cache(
    path: Path, environment: Mapping[str, str], *, is_elsewhere: bool = False
) -> TimingCache:
    """The timings in a file; none where there is no file, or where they are of another environment.

    Args:
        is_elsewhere: the environment's GPU is not in this machine: the same board under its driver's name,
            and any driver and libraries, will do.

    Raises:
        DataError: the file is no timing cache, or is damaged; names it.
    """
    found = _devices(path)
    own = [one for one in found if _device(one.environment) == _device(environment)]
    if found and not own and not is_elsewhere:
        gpus = " and ".join(sorted(one.environment.get("gpu", "unknown") for one in found))
        note = (
            f"'{path}' has no timings of {environment.get('gpu', 'unknown')} yet: those in it are of {gpus}"
        )
        return TimingCache(environment, notes=(note,))
    differences = []
    for one in found if is_elsewhere else own:
        pair = (one.environment, environment)
        differs = _difference(*map(_board, pair)) if is_elsewhere else _difference(*pair)
        if not differs:
            return TimingCache(environment, one.entries)
        differences.append(differs)
    if not differences:
        return TimingCache(environment)
    told = "; ".join(dict.fromkeys(differences))
    note = f"the timings of '{path}' are ignored: they were taken with {told}"
    return TimingCache(environment, notes=(note,))


def add_timings(cache: TimingCache, path: Path) -> None:
    """Merge with what a file has of the same environment, beside those of others; wholly or not at all.

    Raises:
        DataError: the file is no timing cache, or is damaged; it stays.
        DeviceError: it cannot be written.
    """
    others = []
    for found in _devices(path):
        if not _difference(found.environment, cache.environment):
            cache = merge(found, cache)
        elif not _is_replaced(found.environment, cache.environment):
            others.append(found)
    with replace_file(path) as file:
        file.write(_text([*others, cache]).encode())


def merge(one: TimingCache, other: TimingCache) -> TimingCache:
    """Both caches' timings, in any order the same.

    Of two timings of one tactic the one with more samples is kept, then the faster; a rejection is kept
    before any timing, for it says that a result was wrong.

    Raises:
        DataError: they are of different environments.
    """
    differs = _difference(one.environment, other.environment)
    if differs:
        raise DataError("cannot merge timing caches of two environments", got=differs)
    entries = dict(one.entries)
    for key, entry in other.entries.items():
        entries[key] = _merge_entries(entries[key], entry) if key in entries else entry
    return TimingCache(one.environment, entries, tuple(dict.fromkeys((*one.notes, *other.notes))))


def _devices(path: Path) -> list[TimingCache]:
    """What a file has of every GPU; nothing where there is none.

    Raises:
        DataError: the file is no timing cache, or is damaged; names it.
    """
    if not path.exists():
        return []
    data = _read(path)
    try:
        rows = _list(data["devices"]) if data["version"] == VERSION else [data]
        return [_timings(row) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _text(devices: Iterable[TimingCache]) -> str:
    rows = [
        {
            "environment": dict(sorted(cache.environment.items())),
            "workloads": {key: _entry_json(entry) for key, entry in sorted(cache.entries.items())},
        }
        for cache in sorted(devices, key=lambda cache: _order(cache.environment))
    ]
    data = {"format": FORMAT, "version": VERSION, "devices": rows}
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _timings(row: Mapping[str, Any]) -> TimingCache:
    environment = {str(name): str(value) for name, value in row["environment"].items()}
    return TimingCache(environment, {key: _entry(item) for key, item in row["workloads"].items()})


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "formula": entry.formula,
        "weight": entry.weight,
        "inputs": list(entry.inputs),
        "outputs": list(entry.outputs),
        "tactics": {name: _tactic_json(found) for name, found in sorted(entry.tactics.items())},
    }


def _tactic_json(found: Timing | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"rejected": found}
    return {**{name: getattr(found, name) for name in TIMES}, "samples": found.samples}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DataError(f"cannot read the timing cache '{path}'", got=error.strerror) from error
    if len(raw) > MAX_FILE_BYTES:
        raise _damaged(path, f"more than {MAX_FILE_BYTES} bytes")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error) or type(error).__name__) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _damaged(path, "another kind of file")
    if data.get("version") not in VERSIONS:
        raise DataError(
            f"cannot read the timing cache '{path}'",
            got=f"version {data.get('version')}",
            expected=f"version {VERSION}",
            hint=f"--timing-cache with another file, or `rm '{path}'`",
        )
    return data


def _damaged(path: Path, got: str) -> DataError:
    return DataError(
        f"cannot read the timing cache '{path}'",
        got=got[:200],
        expected=f"a file that QuantRT wrote, '{FORMAT}'",
        hint="--timing-cache with another file",
    )


def _entry(data: Mapping[str, Any]) -> Entry:
    tactics = {name: _tactic(item) for name, item in data["tactics"].items()}
    inputs, outputs = (tuple(map(str, _list(data[name]))) for name in ("inputs", "outputs"))
    return Entry(str(data["formula"]), str(data["weight"]), inputs, outputs, tactics)


def _tactic(data: Mapping[str, Any]) -> Timing | str:
    if "rejected" in data:
        return str(data["rejected"])
    times = [data[name] for name in TIMES]
    samples = data["samples"]
    if not all(isinstance(time, int | float) and math.isfinite(time) and time > 0 for time in times):
        raise ValueError(f"times {times}")
    if type(samples) is not int or samples < 1:
        raise ValueError(f"{samples} samples")
    median_us, p20_us, p80_us = map(float, times)
    return Timing(median_us, p20_us, p80_us, samples)


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise TypeError(f"{data!r} is no list")
    return data


def _device(environment: Mapping[str, str]) -> list[str]:
    """Which GPU an environment is of."""
    return [environment.get(name, "") for name in DEVICE]


def _is_replaced(found: Mapping[str, str], here: Mapping[str, str]) -> bool:
    """Whether timings were taken on the same kind of GPU by other sources than those of here."""
    is_same_gpu = _device(found) == _device(here)
    return is_same_gpu and any(found.get(name) != here.get(name) for name in OF_THE_SOURCES)


def _order(environment: Mapping[str, str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Of a GPU's timings in a file: by the GPU, then by all else."""
    return _device(environment), sorted(environment.items())


def _board(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a machine that lacks the GPU cannot share; the GPU as it is sold."""
    name = environment.get("gpu", "")
    row = gpu_sold_as(name)
    kept = {field: text for field, text in environment.items() if field not in OF_THE_MACHINE}
    return {**kept, "gpu": row.name if row else name}


def _difference(found: Mapping[str, str], here: Mapping[str, str]) -> str:
    """The first field that differs, in words; empty when none does."""
    for name in sorted({*found, *here}):
        if found.get(name) != here.get(name):
            return f"{name} {found.get(name, 'unknown')}, not {here.get(name, 'unknown')}"
    return ""


def _merge_entries(one: Entry, other: Entry) -> Entry:
    tactics = dict(one.tactics)
    for name, found in other.tactics.items():
        tactics[name] = _better(tactics[name], found) if name in tactics else found
    return replace(one, tactics=tactics)


def _better(one: Timing | str, other: Timing | str) -> Timing | str:
    if isinstance(one, str) or isinstance(other, str):
        return min(text for text in (one, other) if isinstance(text, str))
    return min(
        one, other, key=lambda timing: (-timing.samples, timing.median_us, timing.p20_us, timing.p80_us)
    )
