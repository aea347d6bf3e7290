# SPDX-License-Identifier: Apache-2.0
"""What is in a calibration cache, and what it means for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from quantrt.calibrate.caches.trt_cache import SYMMETRIC_MAX, TrtCache
from quantrt.quantize.cache_match import CacheMatch
from quantrt.report.quantities import bytes_text, ms_text
from quantrt.report.tables import facts, heading, show, table

__all__ = ["describe_cache", "describe_match", "missing_notes", "show_cache", "show_missing"]

SHOWN = 8
"""Rows of a kind that are shown without being asked for."""


def describe_cache(
    cache: TrtCache,
    path: Path,
    match: CacheMatch | None = None,
    shares: Mapping[str, float] | None = None,
    times: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """JSON-ready facts of a cache file; with `match`, what each tensor is to a model.

    Args:
        shares: of the model's products, by node; see work_shares.
        times: what missing tensors cost; see missing_times.
    """
    return {
        "kind": "calibration cache",
        "path": str(path),
        "file_bytes": path.stat().st_size,
        "header": cache.header,
        "tensorrt_version": cache.version,
        "algorithm": cache.algorithm,
        "origin": None if cache.origin is None else asdict(cache.origin),
        "tensors": [
            {"name": name, "scale": scale, "lo": -scale * (SYMMETRIC_MAX + 1), "hi": scale * SYMMETRIC_MAX}
            for name, scale in cache.scales.items()
        ],
        "invalid": dict(cache.invalid),
        "notes": list(cache.notes),
        "model": None if match is None else describe_match(match, shares or {}, times or {}),
    }


def describe_match(
    match: CacheMatch, shares: Mapping[str, float], times: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """JSON-ready facts of a cache beside a model.

    "cost_ratio" of a missing tensor is the part of the model's products that stays float without it, for the
    target that loses most; empty where shares are not known. "estimated_cost" is what that takes, as far as
    it is known.
    """
    return {
        "path": match.cache.name,
        "header": match.cache.header,
        "used": [
            {"tensor": name, "line": line, "scale": match.given.scales[name]}
            for name, line in match.used.items()
        ],
        "idle": list(match.idle),
        "unknown": dict(match.unknown),
        "missing": {
            name: {target: list(nodes) for target, nodes in by_target.items()}
            for name, by_target in match.missing.items()
        },
        "cost_ratio": {name: _cost(by_target, shares) for name, by_target in match.missing.items() if shares},
        "estimated_cost": {name: dict(cost) for name, cost in times.items()},
        "others_float": {target: list(nodes) for target, nodes in match.others.items()},
        "invalid": dict(match.invalid),
        "notes": list(match.notes),
    }


def _cost(by_target: Mapping[str, Sequence[str]], shares: Mapping[str, float]) -> float:
    return max((sum(shares.get(node, 0.0) for node in nodes) for nodes in by_target.values()), default=0.0)


def show_cache(data: Mapping[str, Any], *, layers: bool = False) -> None:
    """The facts as tables; with `layers`, every tensor too."""
    count = len(data["tensors"]) + len(data["invalid"])
    version = "" if data["tensorrt_version"] is None else f", TensorRT {data['tensorrt_version']}"
    notes = data["notes"] if data["model"] is None else data["model"]["notes"]
    pairs = [
        ("size", bytes_text(data["file_bytes"])),
        ("written by", f"{data['header']}{version}"),
        *_origin_pairs(data["origin"]),
        *(("note", note) for note in notes),
    ]
    show(heading(f"{data['path']}: calibration cache of {count} tensors"), facts(pairs))
    match = data["model"]
    _show_rows("cannot be used", ("tensor", "scale"), list(data["invalid"].items()), layers)
    if match is not None:
        _show_match(match, layers)
    if layers:
        _show_tensors(data, match)


def _show_match(match: Mapping[str, Any], layers: bool) -> None:
    counts = (
        ("used", len(match["used"]), "8-bit tensors on a scale of the cache"),
        ("missing", len(match["missing"]), "tensors without scale, whose readers stay float"),
        ("unknown", len(match["unknown"]), "tensors of the cache that the model has not"),
        ("invalid", len(match["invalid"]), "tensors whose scale cannot be used"),
        ("idle", len(match["idle"]), "tensors of the model that nothing reads in 8 bits"),
    )
    rows = [(name, str(count), text) for name, count, text in counts]
    show("", table(("for this model", "tensors", "which are"), rows, left=("for this model", "which are")))
    show_missing(match, layers)
    _show_rows("float because those are", ("target", "nodes"), _by_nodes(match["others_float"]), layers)
    _show_rows("unknown", ("tensor", "why"), list(match["unknown"].items()), layers)


def show_missing(match: Mapping[str, Any], layers: bool) -> None:
    """What is missing, with what it costs, the dearest first."""
    times, ratios = match["estimated_cost"], match["cost_ratio"]
    columns = ["tensor", "float because of it"]
    if ratios:
        columns.insert(1, "of all products")
    if times:
        columns.insert(1, "costs about")
    rows = []
    for name, by_target in sorted(match["missing"].items(), key=lambda item: -ratios.get(item[0], 0.0)):
        costs = [_us(times[name]["cost_us"]) if name in times else "-"] if times else []
        costs += [f"{ratios[name]:.1%}"] if ratios else []
        rows += [(name, *costs, f"{targets}: {nodes}") for targets, nodes in _by_nodes(by_target)]
    _show_rows("missing", columns, rows, layers)
    if times:
        cost = next(iter(times.values()))
        show(
            f"costs are estimated, for {cost['library']}, from layers that take {_us(cost['of_us'])} together"
        )


def missing_notes(match: Mapping[str, Any]) -> list[str]:
    """What the dearest missing range costs; nothing where no cost is known."""
    times = match["estimated_cost"]
    if not times:
        return []
    name = max(times, key=lambda name: float(times[name]["cost_us"]))
    cost = times[name]
    return [
        f"without a range for '{name}' a run takes about {_us(cost['cost_us'])} longer, of layers that take "
        f"{_us(cost['of_us'])} together (estimated)"
    ]


def _us(time_us: float) -> str:
    return f"{time_us:.3g} us" if time_us < 1000 else f"{ms_text(time_us / 1e3)} ms"


def _by_nodes(by_target: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Targets that lose the same nodes, in one row."""
    found: dict[str, list[str]] = {}
    for target, nodes in by_target.items():
        found.setdefault(", ".join(sorted(nodes)) or "nothing by itself", []).append(target)
    return [(", ".join(targets), nodes) for nodes, targets in found.items()]


def _show_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], layers: bool) -> None:
    """A table of names, cut short where not all is asked for."""
    if not rows:
        return
    shown = rows if layers else rows[:SHOWN]
    show("", heading(title), table(columns, shown, fold=(columns[0], columns[-1])))
    if len(shown) < len(rows):
        show(f"and {len(rows) - len(shown)} more: --layers shows them")


def _show_tensors(data: Mapping[str, Any], match: Mapping[str, Any] | None) -> None:
    columns = ["tensor", "scale", "range"]
    roles: dict[str, str] = {}
    if match is not None:
        columns.append("role")
        roles = dict.fromkeys(match["unknown"], "unknown") | {row["line"]: "used" for row in match["used"]}
    rows = [
        (
            row["name"],
            f"{row['scale']:.6g}",
            f"{row['lo']:.4g} .. {row['hi']:.4g}",
            *(() if match is None else (roles.get(row["name"], "idle"),)),
        )
        for row in data["tensors"]
    ]
    show("", table(columns, rows, left=("role",), fold=("tensor",)))


def _origin_pairs(origin: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if origin is None:
        return []
    random = ", random: the ranges mean nothing" if origin["is_random"] else ""
    return [
        ("samples", f"{origin['samples']}{random}"),
        ("method", origin["method"]),
        ("data", origin["data_hash"]),
        ("graph", origin["fingerprint"]["graph"]),
        ("weights", origin["fingerprint"]["weights"]),
    ]
