# SPDX-License-Identifier: Apache-2.0
"""Times of layers as trtexec prints and exports them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from quantrt.runtime.layer_times import LayerTimes

__all__ = ["profile_json", "profile_lines"]

_HEADERS = ("   Time(ms)", "     Avg.(ms)", "   Median(ms)", "   Time(%)")
_DIGITS = (2, 4, 4, 1)


def profile_lines(times: LayerTimes) -> Iterator[str]:
    """The table: columns as wide as their headers, layers that took no time left out, a sum at the end."""
    rows = profile_json(times)
    yield f"=== Profile ({rows[0]['count']} iterations ) ==="
    yield "".join(_HEADERS) + "   Layer"
    for row in rows[1:]:
        if row["timeMs"] > 0:
            yield _line((row["timeMs"], row["averageMs"], row["medianMs"], row["percentage"]), row["name"])
    sums = [math.fsum(row[key] for row in rows[1:]) for key in ("timeMs", "averageMs", "medianMs")]
    yield _line((*sums, 100.0), "Total")


def profile_json(times: LayerTimes) -> list[dict[str, Any]]:
    """What --exportProfile writes: the number of runs, then a row per layer."""
    count = len(times.run_ms)
    medians = times.median_ms
    totals = {name: math.fsum(row) for name, row in zip(times.names, times.times_ms, strict=True)}
    whole_ms = math.fsum(totals.values())
    rows = [
        {
            "name": name,
            "timeMs": total_ms,
            "averageMs": total_ms / count,
            "medianMs": medians[name],
            "percentage": total_ms / whole_ms * 100 if whole_ms > 0 else 0.0,
        }
        for name, total_ms in totals.items()
    ]
    return [{"count": count}, *rows]


def _line(values: tuple[float, ...], name: str) -> str:
    cells = (
        f"{value:{len(header)}.{digits}f}"
        for value, header, digits in zip(values, _HEADERS, _DIGITS, strict=True)
    )
    return "".join(cells) + f"   {name}"
