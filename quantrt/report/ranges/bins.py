# SPDX-License-Identifier: Apache-2.0
"""Small histograms of quantized tensors beside their ranges, as an engine file keeps them.

A tensor takes about 150 bytes of JSON: its grid, its bounds, and one character for each of BINS bins of equal
width over them. The character stands for the share of values in the bin, in half octaves, which is what a
logarithmic axis can show: code 0 for none, code c > 0 for 2 ** ((c - 63) / 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from quantrt.calibrate.ranges.grid import Bins, Grid
from quantrt.calibrate.ranges.ranges import range_noise_ratio
from quantrt.calibrate.stats import TensorStats
from quantrt.quantize.scales.qparams import QParams

__all__ = ["ALPHABET", "BINS", "counts_below", "read_tensors", "tensor_table", "without_bins"]

BINS = 48

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
"""The digits of base64 (RFC 4648): none of them is escaped in JSON."""

LAST_CODE = len(ALPHABET) - 1

COLUMNS = (
    "name", "dtype", "qmin", "qmax", "scale", "zero_point", "min", "max", "clipped_ratio", "noise_ratio",
    "bins",
)  # fmt: skip
"""Of a row: the grid, what was observed, the shares of values and of signal power that the grid loses."""

DIGITS = 4
"""Significant digits of what is only shown; scales keep all of float32's."""


def tensor_table(grids: Mapping[str, QParams], stats: Mapping[str, TensorStats]) -> dict[str, Any]:
    """A row for each quantized activation, JSON-ready; a tensor that was not observed has its grid alone.

    Args:
        grids: per tensor, by value name; one with a grid per channel is left out.
        stats: what calibration observed, by value name.
    """
    rows = [_row(name, grids[name], stats.get(name)) for name in sorted(grids) if grids[name].axis is None]
    return {"columns": list(COLUMNS), "rows": rows}


def without_bins(table: Mapping[str, Any]) -> dict[str, Any]:
    """The same table with empty histograms."""
    return {**table, "rows": [[*row[:-1], ""] for row in table["rows"]]}


def read_tensors(table: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Rows of `tensor_table` as dicts, with the least and greatest value that the codes stand for, lo and hi.

    Args:
        table: None, as in the report of a float engine, has no rows.
    """
    if not table:
        return []
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    for row in rows:
        row["lo"], row["hi"] = ((row[end] - row["zero_point"]) * row["scale"] for end in ("qmin", "qmax"))
    return rows


def _row(name: str, grid: QParams, stats: TensorStats | None) -> list[Any]:
    scale, zero_point = float(grid.scale), int(grid.zero_point)
    codes = [name, grid.dtype.name, grid.qmin, grid.qmax, float(f"{scale:.9g}"), zero_point]
    if stats is None or not stats.count:
        return [*codes, None, None, None, None, ""]
    lo, hi = ((end - zero_point) * scale for end in (grid.qmin, grid.qmax))
    observed = (stats.lo, stats.hi, _clipped_ratio(stats, lo, hi, scale), _noise_ratio(stats, grid, lo, hi))
    return [*codes, *(_short(value) for value in observed), _bin_codes(stats)]


def _noise_ratio(stats: TensorStats, grid: QParams, lo: float, hi: float) -> float:
    """Noise power over signal power of the tensor on its own grid."""
    levels = grid.qmax - grid.qmin + 1
    is_signed = grid.qmin < 0
    is_symmetric = int(grid.zero_point) == (0 if is_signed else grid.qmin)
    return range_noise_ratio(stats, lo, hi, Grid(levels, symmetric=is_symmetric, signed=is_signed))


def _clipped_ratio(stats: TensorStats, lo: float, hi: float, step: float) -> float:
    """Share of the values that saturate: further than half a step outside."""
    below, inside = counts_below(stats, np.array([lo - step / 2, hi + step / 2]))
    return float(max(below + stats.count - inside, 0.0) / stats.count)


def _bin_codes(stats: TensorStats) -> str:
    """The histogram, BINS characters over [stats.lo, stats.hi]; empty when all values are the same."""
    if not stats.lo < stats.hi:
        return ""
    edges = np.linspace(stats.lo, stats.hi, BINS + 1)
    below = counts_below(stats, edges)
    below[0], below[-1] = 0.0, stats.count
    share = np.diff(below) / stats.count
    with np.errstate(divide="ignore"):
        codes = np.clip(LAST_CODE + np.rint(2.0 * np.log2(share)), 1, LAST_CODE)
    return "".join(
        ALPHABET[int(code)] if part > 0 else ALPHABET[0] for code, part in zip(codes, share, strict=True)
    )


def counts_below(stats: TensorStats, points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many values are less than each point, those of a bin spread evenly over it."""
    bins = Bins.of(stats)
    total = np.cumsum(bins.count)
    knots = np.stack([bins.left, bins.right], axis=1).reshape(-1)
    counts = np.stack([total - bins.count, total], axis=1).reshape(-1)
    return np.asarray(np.interp(points, knots, counts, left=0.0, right=float(stats.count)))


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
