# SPDX-License-Identifier: Apache-2.0
"""A front of time against noise as an SVG picture, with the engines that were measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

__all__ = [
    "ACROSS",
    "BOTTOM",
    "HEIGHT",
    "LEFT",
    "LEGEND",
    "LINE",
    "MARK",
    "RIGHT",
    "TOP",
    "WIDTH",
    "Axes",
    "draw_front",
    "front_points",
    "front_title",
]

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 48, 52
LINE, MARK = "#2563eb", "#111827"
TICKS = 5

ACROSS = "signal over noise of the outputs, dB"
LEGEND = "dots: predicted; crosses: engines measured"


def draw_front(data: Mapping[str, Any]) -> str:
    """The picture of what `quantrt.report.tune.describe_front` describes, as SVG text.

    Across: noise of the outputs in dB below their power; up: milliseconds. Points without noise are left out.
    """
    front, engines = front_points(data)
    axes = Axes([*front, *((x, y) for x, y, _ in engines)])
    points = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in front)
    marks = [f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3.5" fill="{LINE}"/>' for x, y in front]
    measured = [
        f'<path d="M{axes.x(x) - 5:.1f},{axes.y(y):.1f}h10m-5,-5v10" stroke="{MARK}" stroke-width="1.5">'
        f"<title>{escape(title)}</title></path>"
        for x, y, title in engines
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="20" font-size="14">{escape(front_title(data))}</text>',
            f'<text x="{LEFT}" y="36" fill="#6b7280">{LEGEND}</text>',
            *axes.drawn(),
            f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="1.5"/>',
            *marks,
            *measured,
            "</svg>",
            "",
        ]
    )


def front_title(data: Mapping[str, Any]) -> str:
    """What stands above the picture."""
    return f"Time against noise on {data['library']}"


def front_points(
    data: Mapping[str, Any],
) -> tuple[list[tuple[float, float]], list[tuple[float, float, str]]]:
    """(dB, ms) of the front, and (dB, ms, what it is) of the engines that were measured."""
    front = [(_db(row["noise_ratio"]), row["predicted_ms"]) for row in data["front"] if row["noise_ratio"]]
    engines = [
        (_db(row["noise_ratio"]), row["latency_ms"], f"{row['quantized']} of {row['regions']} measured")
        for row in data["engines"]
        if row["noise_ratio"] and row["latency_ms"]
    ]
    return front, engines


class Axes:
    """Where values are drawn, by the points that are (dB, ms)."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        across, up = [x for x, _ in points] or [0.0], [y for _, y in points] or [0.0]
        self._low, self._high = _widened(min(across), max(across))
        self._most = max(up) * 1.1 or 1.0

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return LEFT + (value - self._low) / (self._high - self._low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return HEIGHT - BOTTOM - value / self._most * (HEIGHT - TOP - BOTTOM)

    def ticks(self) -> list[tuple[float, float]]:
        """(dB, ms) that are written at the axes."""
        return [
            (self._low + (self._high - self._low) * number / (TICKS - 1), self._most * number / (TICKS - 1))
            for number in range(TICKS)
        ]

    def drawn(self) -> list[str]:
        """Lines and numbers of both axes."""
        parts = [
            f'<path d="M{LEFT},{TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#9ca3af"/>',
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{ACROSS}</text>',
            f'<text x="16" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" '
            f'transform="rotate(-90 16 {(TOP + HEIGHT - BOTTOM) / 2})">ms</text>',
        ]
        for x, y in self.ticks():
            parts.append(
                f'<text x="{self.x(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:.0f}</text>'
            )
            parts.append(f'<text x="{LEFT - 6}" y="{self.y(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')
        return parts


def _widened(low: float, high: float) -> tuple[float, float]:
    return (low - 1.0, high + 1.0)


def _db(noise_ratio: float) -> float:
    return -10.0 * math.log10(noise_ratio)
