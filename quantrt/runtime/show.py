# SPDX-License-Identifier: Apache-2.0
"""An engine as a small HTML table, for notebooks."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence

from quantrt.plan.plan import Plan
from quantrt.runtime.notes import UNCALIBRATED

__all__ = ["engine_html"]


def engine_html(plan: Plan, name: str, notes: Sequence[str]) -> str:
    """What an engine is, one row per fact; every text of the model is escaped."""
    counts = Counter(layer.precision for layer in plan.layers)
    precision = plan.precision if plan.is_calibrated else f"{plan.precision}, {UNCALIBRATED}"
    rows = [
        ("precision", precision),
        ("library", _library_text(plan)),
        ("inputs", "\n".join(map(str, plan.inputs))),
        ("outputs", "\n".join(map(str, plan.outputs))),
        ("layers", ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none recorded"),
        ("size", f"{plan.model.size_bytes / 1e6:.1f} MB"),
        *(("note", note) for note in notes),
    ]
    cells = "".join(f"<tr><th>{_escape(label)}</th><td>{_escape(text)}</td></tr>" for label, text in rows)
    return f"<table><caption>{_escape(name)}</caption>{cells}</table>"


def _library_text(plan: Plan) -> str:
    """The library and how it runs; of an engine for a GPU, the GPU that it was timed on."""
    if plan.model.library != "cuda":
        return f"{plan.model.library}, {plan.options.hint}, threads: {plan.options.threads or 'all cores'}"
    gpus = plan.device.get("gpu")
    return f"cuda, timed on {gpus[0]['name']}" if gpus else "cuda, not timed on its GPU"


def _escape(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")
