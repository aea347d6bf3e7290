# SPDX-License-Identifier: Apache-2.0
"""Draw docs/results/accuracy-cpu.svg from its JSON: `python -m benchmarks.chart`.

One row per model: the SQNR of the logits of QuantRT's int8 model and of the peers', dB.
"""

__all__ = ["draw"]

import json
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SERIES = (
    ("quantrt int8", "QuantRT", "#2563eb"),
    ("nncf default", "NNCF", "#9ca3af"),
    ("ort default", "ORT", "#d1d5db"),
)

LABEL_PX, BAR_PX, ROW_PX, GAP_PX, TOP_PX = 210, 10, 46, 6, 46
PX_PER_DB = 9
MAX_DB = 50


def main() -> None:
    """Read the results, write the picture beside them."""
    results = json.loads((RESULTS / "accuracy-cpu.json").read_text())
    (RESULTS / "accuracy-cpu.svg").write_text(draw(results["models"]))


def draw(models: dict[str, Any]) -> str:
    """The chart as SVG text."""
    width, height = LABEL_PX + MAX_DB * PX_PER_DB + 60, TOP_PX + ROW_PX * len(models) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="8" y="18" font-size="14">int8 on a CPU: signal over quantization noise of the output, '
        "dB (higher is better)</text>",
        *_legend(),
    ]
    for row, (name, result) in enumerate(models.items()):
        parts += _row(name, result["contenders"], TOP_PX + row * ROW_PX)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    parts = []
    for index, (_, title, colour) in enumerate(SERIES):
        x = LABEL_PX + index * 90
        parts.append(f'<rect x="{x}" y="27" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="36">{escape(title)}</text>')
    return parts


def _row(name: str, contenders: dict[str, Any], top: int) -> list[str]:
    parts = [f'<text x="{LABEL_PX - 8}" y="{top + 22}" text-anchor="end">{escape(name)}</text>']
    for index, (key, _, colour) in enumerate(SERIES):
        y = top + GAP_PX + index * (BAR_PX + 1)
        ratios = contenders.get(key, {}).get("sqnr_db")
        if not ratios:
            parts.append(f'<text x="{LABEL_PX + 4}" y="{y + 9}" font-size="10">cannot run it</text>')
            continue
        decibels = next(iter(ratios.values()))
        length = round(min(max(decibels, 0.0), MAX_DB) * PX_PER_DB)
        parts.append(f'<rect x="{LABEL_PX}" y="{y}" width="{length}" height="{BAR_PX}" fill="{colour}"/>')
        parts.append(f'<text x="{LABEL_PX + length + 4}" y="{y + 9}" font-size="10">{decibels:.1f}</text>')
    return parts


if __name__ == "__main__":
    main()
