# SPDX-License-Identifier: Apache-2.0
"""An engine as a small table, for notebooks and terminals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from quantrt.notebook import facts_html, rich_table
from quantrt.plan.plan import Plan
from quantrt.runtime.notes import UNCALIBRATED

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["engine_html", "engine_table"]


def engine_html(plan: Plan, name: str, notes: Sequence[str]) -> str:
    """What an engine is, one row per fact; every text of the model is escaped."""
    return facts_html(name, _facts(plan, notes))


def engine_table(plan: Plan, name: str, notes: Sequence[str]) -> Table:
    """The same for a terminal, as rich prints it."""
    return rich_table(name, ("", ""), _facts(plan, notes), left=(0, 1))


def _facts(plan: Plan, notes: Sequence[str]) -> list[tuple[str, str]]:
    counts = Counter(layer.precision for layer in plan.layers)
    precision = plan.precision if plan.is_calibrated else f"{plan.precision}, {UNCALIBRATED}"
    return [
        ("precision", precision),
        ("library", _library_text(plan)),
        ("inputs", "\n".join(map(str, plan.inputs))),
        ("outputs", "\n".join(map(str, plan.outputs))),
        ("layers", ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none recorded"),
        ("size", f"{plan.model.size_bytes / 1e6:.1f} MB"),
        *(("note", note) for note in notes),
    ]


def _library_text(plan: Plan) -> str:
    """The library and how it runs; of an engine for a GPU, the GPU that it was timed on."""
    if plan.model.library != "cuda":
        return f"{plan.model.library}, {plan.options.hint}, threads: {plan.options.threads or 'all cores'}"
    gpus = plan.device.get("gpu")
    return f"cuda, timed on {gpus[0]['name']}" if gpus else "cuda, not timed on its GPU"
