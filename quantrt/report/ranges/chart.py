# SPDX-License-Identifier: Apache-2.0
"""Histograms of calibrated tensors with the ranges that are chosen for them: a picture in SVG or HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from quantrt.calibrate.ranges.ranges import choose_range
from quantrt.calibrate.stats import Stats, TensorStats
from quantrt.config import CalibrationConfig
from quantrt.report.ranges.bins import counts_below
from quantrt.report.ranges.file import GRID

__all__ = ["draw_ranges", "ranges_page"]

COLUMNS = 3
PANEL_WIDTH, PANEL_HEIGHT = 320, 150
MARGIN, TITLE_HEIGHT, PLOT_HEIGHT = 16, 40, 76
BINS = 96
DECADES = 6
"""Of the logarithmic axis: bins with a smaller share of the values are not drawn."""

FILL, KEPT, OTHER, GREY = "#93c5fd", "#1d4ed8", "#b91c1c", "#6b7280"


def draw_ranges(stats: Stats, config: CalibrationConfig, *, other: Stats | None = None) -> str:
    """A panel per tensor, as SVG text.

    Across: values; up: the share of them per bin, logarithmic over six decades. Lines stand at the ends of
    the range that `config` chooses on an 8-bit grid.

    Args:
        other: a second calibration of the model, whose histogram and range are drawn over the first in red.
    """
    names = list(stats.tensors)
    rows = -(-len(names) // COLUMNS)
    width = COLUMNS * PANEL_WIDTH + MARGIN
    height = TITLE_HEIGHT + rows * PANEL_HEIGHT + MARGIN
    title = f"{len(names)} tensors, {stats.samples} samples, method {config.method}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{MARGIN}" y="24" font-size="14">{escape(title)}</text>',
    ]
    for index, name in enumerate(names):
        x = MARGIN + index % COLUMNS * PANEL_WIDTH
        y = TITLE_HEIGHT + index // COLUMNS * PANEL_HEIGHT
        second = None if other is None else other.tensors.get(name)
        parts += _panel(name, stats.tensors[name], second, config, at=(x, y))
    return "\n".join([*parts, "</svg>", ""])


def ranges_page(picture: str, title: str) -> str:
    """A page with the picture; it loads nothing."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title></head>\n"
        f'<body style="margin:0">\n{picture}</body></html>\n'
    )


def _panel(
    name: str,
    stats: TensorStats,
    other: TensorStats | None,
    config: CalibrationConfig,
    *,
    at: tuple[int, int],
) -> list[str]:
    """One tensor, its upper left corner at `at`."""
    x, y = at
    chosen = choose_range(stats, GRID, config)
    both = [stats] if other is None else [stats, other]
    lo = min(chosen.lo, *(each.lo for each in both))
    hi = max(chosen.hi, *(each.hi for each in both))
    axis = _Axis(lo, hi if hi > lo else lo + 1.0, x)
    base = y + TITLE_HEIGHT // 2 + PLOT_HEIGHT
    text = f"{_short(name)}: {chosen.lo:.4g} .. {chosen.hi:.4g} ({chosen.method})"
    parts = [
        f'<text x="{x}" y="{y + 12}">{escape(text)}<title>{escape(name)}</title></text>',
        f'<polygon points="{axis.outline(stats, base)}" fill="{FILL}"/>',
        f'<path d="M{x},{base}h{axis.width}" stroke="{GREY}"/>',
        *_ends(axis, (chosen.lo, chosen.hi), base, KEPT),
        f'<text x="{x}" y="{base + 13}" fill="{GREY}">{lo:.4g}</text>',
        f'<text x="{x + axis.width}" y="{base + 13}" fill="{GREY}" text-anchor="end">{hi:.4g}</text>',
    ]
    if other is not None:
        second = choose_range(other, GRID, config)
        parts.append(f'<polygon points="{axis.outline(other, base)}" fill="none" stroke="{OTHER}"/>')
        parts += _ends(axis, (second.lo, second.hi), base, OTHER)
    return parts


class _Axis:
    """Values from left to right, shares from bottom to top."""

    def __init__(self, lo: float, hi: float, x: int) -> None:
        self.width = PANEL_WIDTH - 2 * MARGIN
        self._lo, self._hi, self._x = lo, hi, x

    def place(self, value: float) -> float:
        """Across, of a value."""
        return self._x + (value - self._lo) / (self._hi - self._lo) * self.width

    def outline(self, stats: TensorStats, base: int) -> str:
        """The corners of a histogram."""
        edges = np.linspace(self._lo, self._hi, BINS + 1)
        below = counts_below(stats, edges)
        below[-1] = stats.count
        shares = np.diff(below) / max(stats.count, 1)
        shares[0] += below[0] / max(stats.count, 1)
        corners = [(float(self._x), float(base))]
        for left, right, share in zip(edges[:-1], edges[1:], shares, strict=True):
            top = base - _height(float(share))
            corners += [(self.place(float(left)), top), (self.place(float(right)), top)]
        corners.append((float(self._x + self.width), float(base)))
        return " ".join(f"{across:.1f},{up:.1f}" for across, up in corners)


def _height(share: float) -> float:
    if share <= 10.0**-DECADES:
        return 0.0
    return PLOT_HEIGHT * (1 + math.log10(min(share, 1.0)) / DECADES)


def _ends(axis: _Axis, ends: Sequence[float], base: int, colour: str) -> list[str]:
    return [
        f'<path d="M{axis.place(end):.1f},{base}v-{PLOT_HEIGHT}" stroke="{colour}" stroke-width="1.5"/>'
        for end in ends
    ]


def _short(name: str, most: int = 24) -> str:
    """A name cut to its end, which tells tensors apart."""
    return name if len(name) <= most else "..." + name[-most:]
