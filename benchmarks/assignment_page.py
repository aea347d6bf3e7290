# SPDX-License-Identifier: Apache-2.0
"""The results page of `benchmarks.assignment`."""

__all__ = ["assignment_page", "best_round", "culprits"]

from collections.abc import Iterator
from typing import Any

from benchmarks.pages.page import table
from benchmarks.record import machine_line
from quantrt.report.built.text import most_text

HEAD = """# Mixed precision on a CPU

{machine}

One `quantrt build --int8` per row, of CIFAR-10 pictures. All of a row's engines were timed in the same
rounds; the time ratio is to the fastest float engine, paired within rounds. *Mixed* is what `quantrt
build` makes where all of int8 is outside the budget, or slower. The rank correlation (Spearman) is of the
damage of regions with how far the class probabilities move on other pictures when that region alone is
quantized. `-outliers`: two channels of what attention reads of the residual stream are a thousand times
as large in three blocks; `-ranges`: the channels of residual streams have ranges of 1 to 1,000.

The solver took {solver:.2f} s for 1,000 regions in 4 precisions. Reproduce: `python -m benchmarks.assignment`

"""

COLUMNS = (
    "model",
    "budget",
    "shipped",
    "drop of all int8",
    "its time ratio",
    "drop of mixed",
    "its time ratio",
    "8-bit regions",
    "predicted / measured ms",
    "rank correlation",
    "build s",
    "commit",
)

MOST_TOLD = 16
"""Regions that stay float, in a table of them."""


def assignment_page(results: dict[str, Any]) -> str:
    """Markdown: a row per case, and the culprits of those that were mixed."""
    rows = [_row(name, result) for name, result in results["models"].items()]
    head = HEAD.format(machine=machine_line(results["environment"]), solver=results["solver_s"])
    told = (text for name, result in results["models"].items() for text in culprits(name, result))
    return "".join([head + table(COLUMNS, rows), *told])


def _row(name: str, result: dict[str, Any]) -> list[str]:
    best = best_round(result)
    shipped = result["verdict"]["shipped"]
    return [
        name,
        f"{result['budget']:g}",
        shipped,
        *_figures(_fastest(result, mixed=False)),
        *_figures(_fastest(result, mixed=True)),
        "" if best is None else f"{best['quantized']} of {best['quantized'] + len(best['float'])}",
        "" if best is None else f"{best['predicted_ms']:.3g} / {best['latency_ms']:.3g}",
        f"{result['rank_correlation']:.2f}",
        f"{result['build_s']:.0f}",
        result["commit"],
    ]


def _fastest(result: dict[str, Any], *, mixed: bool) -> dict[str, Any] | None:
    rows = [
        row
        for row in result["candidates"]
        if row.get("precision") == "int8" and row["latency"] and row["name"].endswith("mixed") == mixed
    ]
    return min(rows, key=lambda row: row["latency"]["median_ms"], default=None)


def _figures(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["", ""]
    accuracy, pair = row["accuracy"], row["against_float"]
    drop = (
        ""
        if accuracy is None
        else "inf"
        if accuracy["drop_ratio"] is None
        else f"{most_text(accuracy)}{accuracy['drop_ratio']:.4f}"
    )
    return [drop, "" if pair is None else f"{pair['ratio']:.2f}"]


def best_round(result: dict[str, Any]) -> dict[str, Any] | None:
    """The round whose engine is the fastest inside the budget, of those of a build; None without any."""
    return next((one for one in result["rounds"] if one["is_best"]), None)


def culprits(name: str, result: dict[str, Any]) -> Iterator[str]:
    """What stays float in the best engine, the worst first; nothing where none was mixed."""
    best = best_round(result)
    if best is None:
        return
    damage = {row["name"]: row["damage"] for row in result["regions"]}
    rows = [[row["name"], f"{damage[row['name']]:.1e}", row["reason"]] for row in best["float"]]
    rows.sort(key=lambda row: -damage[row[0]])
    head = f"\n## What stays float in {name}\n\n"
    yield head + table(("region", "noise alone", "why"), rows[:MOST_TOLD])
    if len(rows) > MOST_TOLD:
        yield f"\nAnd {len(rows) - MOST_TOLD} more.\n"
