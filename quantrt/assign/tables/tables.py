# SPDX-License-Identifier: Apache-2.0
"""What an assignment is made of, as one JSON file: regions, their damages and times, and measured engines.

    {"kind": "assignment tables", "version": 1, "model": {"graph": "3f..", "weights": "9a.."},
     "library": "openvino", "codes": "7c..", "metric": "top1", "samples": 16,
     "regions": [{"name": "/conv1", "nodes": ["/conv1", "/add1"], "op_types": ["Conv", "Add"],
                  "damage": {"fp32": 0.0, "int8": 1.3e-05}, "time_ms": {"fp32": 0.21, "int8": 0.08},
                  "bytes": {"fp32": 36864, "int8": 9472}}],
     "crossings": [["/conv1", "/conv2", 100352]], "ns_per_element": 0.2, "rest_bytes": 51200,
     "engines": [{"precisions": ["int8"], "latency_ms": 3.1, "noise_ratio": 0.002, "drop_ratio": 0.01}]}

The precisions of an engine are in the order of the regions. `damage` lacks what was not measured;
`crossings`, `time_ms` and `ns_per_element` lack what was not timed; `codes`, `bytes` and `rest_bytes` may be
absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quantrt.assign.tables.cost_model import CostModel, Crossing
from quantrt.assign.tables.noise_limit import NoisePoint
from quantrt.assign.tables.region import FLOAT, Region
from quantrt.assign.tables.sizes import SizeModel
from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file
from quantrt.model.model import Fingerprint

__all__ = ["BuiltEngine", "Tables", "read_tables", "tables_from_json", "tables_to_json", "write_tables"]

_MAKE = "`quantrt build MODEL.onnx --int8 --calib-data P --tables FILE.json -o ENGINE.qrt` to make them"

KIND = "assignment tables"
VERSION = 1


@dataclass(frozen=True)
class BuiltEngine:
    """An engine that was built and measured.

    Attributes:
        assignment: precision by region.
        latency_ms: None where it was not timed.
        noise_ratio: of the outputs, its regions quantized together in the float model; None where not
            measured.
        drop_ratio: of the metric; infinite where outputs are not finite, None where not measured.
    """

    assignment: Mapping[str, str]
    latency_ms: float | None = None
    noise_ratio: float | None = None
    drop_ratio: float | None = None

    @property
    def quantized_count(self) -> int:
        """How many of its regions are not float."""
        return sum(precision != FLOAT for precision in self.assignment.values())


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Everything that an assignment for another budget needs.

    Attributes:
        fingerprint: of the model.
        library: whose rules placed the 8-bit nodes, and whose engines were timed.
        codes: digest of the model in which everything that can be is 8-bit; empty where it is not known.
        metric: that drops are of.
        samples: that damages were measured on.
        regions: in topological order.
        damages: by region, the noise ratio of the outputs with it alone quantized, by precision.
        costs: None where nothing was timed.
        sizes: None where they are not known.
        engines: those that were built, the whole-model ones first.
    """

    fingerprint: Fingerprint
    library: str
    codes: str = ""
    metric: str
    samples: int
    regions: tuple[Region, ...]
    damages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    costs: CostModel | None = None
    sizes: SizeModel | None = None
    engines: tuple[BuiltEngine, ...] = ()

    @property
    def points(self) -> tuple[NoisePoint, ...]:
        """The engines whose noise and drop are known."""
        return tuple(
            NoisePoint(engine.noise_ratio, engine.drop_ratio)
            for engine in self.engines
            if engine.noise_ratio is not None and engine.drop_ratio is not None
        )

    def with_engine(self, engine: BuiltEngine) -> Tables:
        """With one engine more; the rate of conversions is fitted to its time."""
        engines = (*self.engines, engine)
        timed = [(one.assignment, one.latency_ms) for one in engines if one.latency_ms is not None]
        return replace(self, engines=engines, costs=None if self.costs is None else self.costs.fitted(timed))

    def fits(self, other: Tables) -> bool:
        """Whether damages of `other` are of the same model, rules, grids, regions and samples."""
        mine, theirs = (
            (one.fingerprint, one.library, one.codes, one.samples, one.regions) for one in (self, other)
        )
        return mine == theirs


def tables_to_json(tables: Tables) -> dict[str, Any]:
    """JSON-ready data; infinities become "inf"."""
    costs = tables.costs
    return {
        "kind": KIND,
        "version": VERSION,
        "model": {"graph": tables.fingerprint.graph, "weights": tables.fingerprint.weights},
        "library": tables.library,
        "codes": tables.codes,
        "metric": tables.metric,
        "samples": tables.samples,
        "regions": [
            {
                "name": region.name,
                "nodes": list(region.nodes),
                "op_types": list(region.op_types),
                "damage": {key: _number(x) for key, x in tables.damages.get(region.name, {}).items()},
                "time_ms": {} if costs is None else dict(costs.times_ms[region.name]),
                "bytes": {} if tables.sizes is None else dict(tables.sizes.bytes_of[region.name]),
            }
            for region in tables.regions
        ],
        "crossings": [] if costs is None else [[c.first, c.second, c.elements] for c in costs.crossings],
        "ns_per_element": None if costs is None else costs.ns_per_element,
        "rest_bytes": None if tables.sizes is None else tables.sizes.rest_bytes,
        "engines": [
            {
                "precisions": [engine.assignment[region.name] for region in tables.regions],
                "latency_ms": engine.latency_ms,
                "noise_ratio": _number(engine.noise_ratio),
                "drop_ratio": _number(engine.drop_ratio),
            }
            for engine in tables.engines
        ],
    }


def tables_from_json(data: Any, source: str) -> Tables:
    """The tables of `tables_to_json`.

    Args:
        source: what to call the data in messages.

    Raises:
        DataError: they are of another kind, of a newer version, or damaged.
    """
    if not isinstance(data, Mapping) or data.get("kind") != KIND:
        raise DataError(f"'{source}' holds no assignment tables", hint=_MAKE)
    if data.get("version") != VERSION:
        raise DataError(
            f"cannot read the tables of '{source}'",
            got=f"version {data.get('version')}",
            expected=f"version {VERSION}",
            hint=_MAKE,
        )
    try:
        return _tables(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"the tables of '{source}' are damaged", got=repr(error), hint=_MAKE) from error


def read_tables(path: Path) -> Tables:
    """Tables from a file.

    Raises:
        DataError: the file is missing, is no JSON or holds no tables.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read '{path}'", got=error.strerror or str(error), hint=_MAKE) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"'{path}' holds no assignment tables", got=f"no JSON: {error}", hint=_MAKE
        ) from error
    return tables_from_json(data, str(path))


def write_tables(tables: Tables, path: Path) -> None:
    """Write the file wholly or not at all.

    Raises:
        DeviceError: the disk is full or the folder may not be written to.
    """
    with replace_file(path) as file:
        file.write((json.dumps(tables_to_json(tables), indent=1) + "\n").encode())


def _tables(data: Mapping[str, Any]) -> Tables:
    rows = data["regions"]
    regions = tuple(
        Region(str(row["name"]), tuple(map(str, row["nodes"])), tuple(map(str, row["op_types"])))
        for row in rows
    )
    engines = tuple(
        BuiltEngine(
            {
                region.name: str(precision)
                for region, precision in zip(regions, row["precisions"], strict=True)
            },
            _optional(row["latency_ms"]),
            _optional(row["noise_ratio"]),
            _optional(row["drop_ratio"]),
        )
        for row in data["engines"]
    )
    return Tables(
        fingerprint=Fingerprint(str(data["model"]["graph"]), str(data["model"]["weights"])),
        library=str(data["library"]),
        codes=str(data.get("codes", "")),
        metric=str(data["metric"]),
        samples=int(data["samples"]),
        regions=regions,
        damages={
            row["name"]: {key: float(x) for key, x in row["damage"].items()} for row in rows if row["damage"]
        },
        costs=_costs(data, engines),
        sizes=_sizes(data),
        engines=engines,
    )


def _costs(data: Mapping[str, Any], engines: Sequence[BuiltEngine]) -> CostModel | None:
    if data["ns_per_element"] is None:
        return None
    times_ms = {row["name"]: {key: float(x) for key, x in row["time_ms"].items()} for row in data["regions"]}
    crossings = tuple(Crossing(str(a), str(b), int(count)) for a, b, count in data["crossings"])
    unknown = {name for row in crossings for name in (row.first, row.second)} - times_ms.keys()
    if unknown:
        raise ValueError(f"no region is called '{min(unknown)}'")
    untimed = [
        (name, precision)
        for assignment in (dict.fromkeys(times_ms, FLOAT), *(one.assignment for one in engines))
        for name, precision in assignment.items()
        if not math.isfinite(times_ms[name].get(precision, math.nan))
    ]
    if untimed:
        raise ValueError("region '{}' has no time in {}".format(*untimed[0]))
    return CostModel(
        times_ms=times_ms,
        crossings=crossings,
        ns_per_element=float(data["ns_per_element"]),
    )


def _sizes(data: Mapping[str, Any]) -> SizeModel | None:
    if data.get("rest_bytes") is None:
        return None
    rows = {row["name"]: {key: int(x) for key, x in row["bytes"].items()} for row in data["regions"]}
    lacking = next((name for name, row in rows.items() if FLOAT not in row), None)
    if lacking is not None:
        raise ValueError(f"region '{lacking}' has no size in {FLOAT}")
    return SizeModel(rows, int(data["rest_bytes"]))


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)
