# SPDX-License-Identifier: Apache-2.0
"""The picture of `quantrt.report.pareto.chart` as a PNG, for where no SVG is shown."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from quantrt.report.pareto.chart import (
    ACROSS,
    BOTTOM,
    HEIGHT,
    LEFT,
    LEGEND,
    LINE,
    MARK,
    RIGHT,
    TOP,
    WIDTH,
    Axes,
    front_points,
    front_title,
)

__all__ = ["front_png"]

SCALE = 2
"""Pixels for each of the SVG's, for screens that have as many."""

GREY = "#6b7280"
RADIUS, ARM = 3.5, 5
TITLE_SIZE, TEXT_SIZE = 14, 12


def front_png(data: Mapping[str, Any]) -> bytes:
    """The file's bytes.

    Args:
        data: of `quantrt.report.tune.describe_front`.
    """
    from PIL import Image, ImageDraw, ImageFont  # not at the top: only pictures need it

    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), "white")
    draw = ImageDraw.Draw(image)
    fonts = {size: ImageFont.load_default(size * SCALE) for size in (TITLE_SIZE, TEXT_SIZE)}

    def text(x: float, y: float, words: str, *, anchor: str, fill: str = MARK, size: int = TEXT_SIZE) -> None:
        draw.text((x * SCALE, y * SCALE), words, fill=fill, font=fonts[size], anchor=anchor)

    def line(*points: tuple[float, float], fill: str) -> None:
        draw.line([(x * SCALE, y * SCALE) for x, y in points], fill=fill, width=SCALE)

    front, engines = front_points(data)
    axes = Axes([*front, *((x, y) for x, y, _ in engines)])
    text(LEFT, 20, front_title(data), anchor="ls", size=TITLE_SIZE)
    text(LEFT, 36, LEGEND, anchor="ls", fill=GREY)
    line((LEFT, TOP), (LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, HEIGHT - BOTTOM), fill=GREY)
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, ACROSS, anchor="ms")
    for x, y in axes.ticks():
        text(axes.x(x), HEIGHT - BOTTOM + 16, f"{x:.0f}", anchor="ms")
        text(LEFT - 6, axes.y(y), f"{y:.3g} ms", anchor="rm")
    line(*((axes.x(x), axes.y(y)) for x, y in front), fill=LINE)
    for x, y in front:
        draw.circle((axes.x(x) * SCALE, axes.y(y) * SCALE), RADIUS * SCALE, fill=LINE)
    for x, y, _ in engines:
        line((axes.x(x) - ARM, axes.y(y)), (axes.x(x) + ARM, axes.y(y)), fill=MARK)
        line((axes.x(x), axes.y(y) - ARM), (axes.x(x), axes.y(y) + ARM), fill=MARK)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
