# SPDX-License-Identifier: Apache-2.0
"""What is in a ranges file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quantrt.calibrate.ranges.ranges import Grid, choose_range
from quantrt.calibrate.stats import Stats
from quantrt.config import CalibrationConfig
from quantrt.report.quantities import bytes_text, count_text, error_text
from quantrt.report.tables import facts, heading, show, table

__all__ = ["describe_ranges", "show_ranges"]

GRID = Grid(levels=256, symmetric=False, signed=False)
"""What the ranges are shown for: 8 bits with a free zero point."""


def describe_ranges(stats: Stats, path: Path, config: CalibrationConfig) -> dict[str, Any]:
    """JSON-ready facts: what was observed, and the range `config` chooses per tensor on an 8-bit grid."""
    return {
        "kind": "ranges",
        "path": str(path),
        "file_bytes": path.stat().st_size,
        "samples": stats.samples,
        "data_hash": stats.data_hash,
        "is_random": stats.is_random,
        "fingerprint": {"graph": stats.fingerprint.graph, "weights": stats.fingerprint.weights},
        "method": config.method,
        "notes": list(stats.notes),
        "tensors": [_tensor(name, stats, config) for name in stats.tensors],
    }


def show_ranges(data: Mapping[str, Any], *, layers: bool = False) -> None:
    """The facts as tables; with `layers`, every tensor too."""
    methods = Counter(row["method"] for row in data["tensors"])
    pairs = [
        ("size", bytes_text(data["file_bytes"])),
        ("samples", f"{data['samples']}{', random: the ranges mean nothing' if data['is_random'] else ''}"),
        ("methods", ", ".join(f"{name} for {count}" for name, count in methods.most_common())),
        *(("note", note) for note in data["notes"]),
        ("data", data["data_hash"]),
        ("graph", data["fingerprint"]["graph"]),
        ("weights", data["fingerprint"]["weights"]),
    ]
    show(heading(f"{data['path']}: ranges of {len(data['tensors'])} tensors"), facts(pairs))
    if layers:
        columns = ("tensor", "values", "min", "max", "range", "method", "noise")
        show("", table(columns, [_cells(row) for row in data["tensors"]], left=("method",), fold=("tensor",)))


def _tensor(name: str, stats: Stats, config: CalibrationConfig) -> dict[str, Any]:
    tensor = stats.tensors[name]
    chosen = choose_range(tensor, GRID, config)
    return {
        "name": name,
        "count": tensor.count,
        "min": tensor.lo,
        "max": tensor.hi,
        "lo": chosen.lo,
        "hi": chosen.hi,
        "method": chosen.method,
        "error_ratio": chosen.error_ratio,
    }


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["name"],
        count_text(row["count"]),
        f"{row['min']:.4g}",
        f"{row['max']:.4g}",
        f"{row['lo']:.4g} .. {row['hi']:.4g}",
        row["method"],
        error_text(row["error_ratio"]),
    )
