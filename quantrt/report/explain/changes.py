# SPDX-License-Identifier: Apache-2.0
"""The cheapest changes that would make an engine faster, each with its gain and how that is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.plan.plan import Plan
from quantrt.report.built.shipped_row import shipped_row
from quantrt.report.explain.peaks import Peaks
from quantrt.report.explain.rows import CONVERSIONS, LayerRow
from quantrt.report.explain.times import AT_BUILD, ESTIMATED, HERE, Times
from quantrt.report.explain.what_if import Prediction, predict

__all__ = ["BATCH_FACTOR", "MAX_CHANGES", "BatchTime", "Change", "cheapest_changes"]

MAX_CHANGES = 3

LEAST_GAIN_RATIO = 0.01
"""Of a run, below which a change is not worth its line."""

LEAST_LAYER_RATIO = 0.1
"""Of a layer's time, below which two measurements do not tell it from another precision."""

EXCLUDED = "excluded"
"""In the reason of a node that the user keeps float."""

_FLOATS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}

BATCH_FACTOR = 8
"""How many times as many samples are tried or estimated, where the batch is free."""


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """An engine at another batch size than the one explained.

    Attributes:
        speedup_ratio: samples per second there over those here.
    """

    batch: int
    now: int
    speedup_ratio: float
    basis: str = HERE


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing to try.

    Attributes:
        what: one sentence.
        gain_ratio: of a run's time that it should save, per sample where the batch changes.
        basis: how that is known.
        command: the options to try it with.
    """

    what: str
    gain_ratio: float
    basis: str
    command: str


def cheapest_changes(
    plan: Plan, rows: Sequence[LayerRow], times: Times, peaks: Peaks | None, batch: BatchTime | None
) -> tuple[Change, ...]:
    """At most MAX_CHANGES, the largest gain first."""
    found = [
        *_faster_candidates(plan.report),
        *_other_precisions(plan, rows, times, peaks),
        *_islands(rows, times, peaks),
        *_batch(batch or _estimated_batch(plan, rows, times)),
    ]
    worth = [change for change in found if change.gain_ratio >= LEAST_GAIN_RATIO]
    return tuple(sorted(worth, key=lambda change: -change.gain_ratio)[:MAX_CHANGES])


def _batch(batch: BatchTime | None) -> Iterator[Change]:
    if batch is not None and batch.speedup_ratio > 1:
        yield Change(
            what=f"batch {batch.batch} instead of {batch.now}: {batch.speedup_ratio:.2f}x the throughput",
            gain_ratio=1 - 1 / batch.speedup_ratio,
            basis=batch.basis,
            command=f"quantrt bench ENGINE --batch {batch.batch}",
        )


def _estimated_batch(plan: Plan, rows: Sequence[LayerRow], times: Times) -> BatchTime | None:
    """A larger batch on a GPU: what launches take stays, the rest grows with the batch.

    None where a layer's work is not known, or the batch is fixed.
    """
    timed = [row for row in rows if row.time_us]
    is_free = all(spec.shape and not isinstance(spec.shape[0], int) for spec in plan.inputs)
    sizes = [form.dims[0] for row in rows for form in row.layer.inputs[:1] if form.dims]
    is_known = all(row.roofline_us is not None for row in timed)
    if plan.model.library != "cuda" or not (is_free and timed and sizes and is_known):
        return None
    then_us = sum(
        (row.time_us or 0.0) + (BATCH_FACTOR - 1) * (row.roofline_us or 0.0)
        if row.bound == "launch"
        else BATCH_FACTOR * (row.time_us or 0.0)
        for row in timed
    )
    now = int(sizes[0])
    return BatchTime(
        batch=BATCH_FACTOR * now,
        now=now,
        speedup_ratio=BATCH_FACTOR * times.total_us / then_us,
        basis="estimated from the roofline",
    )


def _faster_candidates(report: Mapping[str, Any]) -> Iterator[Change]:
    """Candidates of the build that were faster and lost too much accuracy."""
    shipped = shipped_row(report)
    for row in report.get("candidates", ()):
        accuracy = row.get("accuracy")
        if shipped is None or not row.get("latency") or row["status"] != "over budget" or accuracy is None:
            continue
        ratio = row["latency"]["median_ms"] / shipped["latency"]["median_ms"]
        drop = accuracy["drop_ratio"]
        lost = "an accuracy that is not a number" if drop is None else f"a drop of {drop:.4f}"
        yield Change(
            what=f"{row['name']}, which the build found outside the accuracy budget ({lost})",
            gain_ratio=1 - ratio,
            basis=AT_BUILD,
            command="quantrt build ... --exclude SENSITIVE_LAYERS, or a larger --max-drop",
        )


def _other_precisions(
    plan: Plan, rows: Sequence[LayerRow], times: Times, peaks: Peaks | None
) -> Iterator[Change]:
    """Products that are or would be faster in the other precision, grouped by why they are as they are."""
    groups: dict[tuple[str, str, str], list[tuple[LayerRow, Prediction]]] = {}
    for row in rows:
        if not row.layer.operations or not row.layer.nodes:
            continue
        to = "int8" if row.layer.precision not in CODE_PRECISIONS else _float_beside(row)
        if not to or (to == "int8" and not _may_be_int8(plan, row)):
            continue
        found = predict(row, to, peaks, None, "")
        if found.gain_us is not None and found.gain_us > LEAST_LAYER_RATIO * (row.time_us or 0.0):
            groups.setdefault((to, found.basis, row.cause), []).append((row, found))
    for (to, basis, _), members in groups.items():
        gain_us = sum(found.gain_us or 0.0 for _, found in members)
        first = members[0][0].layer
        node = first.nodes[0]
        others = f" and {len(members) - 1} like it" if len(members) > 1 else ""
        why = f" (now: {first.reason})" if first.reason else ""
        yield Change(
            what=f"'{node}'{others} in {to} instead of {first.precision}{why}",
            gain_ratio=gain_us / times.total_us if times.total_us else 0.0,
            basis=f"{'estimated from the roofline' if basis == ESTIMATED else basis}, without conversions",
            command=_how(to, node, first.reason),
        )


def _may_be_int8(plan: Plan, row: LayerRow) -> bool:
    """Whether an option would make a float product int8: the rules allow it, and the build did not try."""
    if plan.precision in CODE_PRECISIONS:
        return plan.precision == "int8" and EXCLUDED in row.layer.reason
    candidates = plan.report.get("candidates", ())
    return not any(one.get("precision") == "int8" for one in candidates)


def _how(to: str, node: str, reason: str) -> str:
    """The options that change a node's precision."""
    if to != "int8":
        return f"quantrt build ... --exclude '{node}'"
    return "quantrt build ... without --exclude" if EXCLUDED in reason else "quantrt build ... --int8"


def _float_beside(row: LayerRow) -> str:
    """The float precision in which the build timed a layer of codes."""
    beside = row.layer.attributes.get("beside_us", {})
    return next((name for name in beside if name not in CODE_PRECISIONS), "")


def _islands(rows: Sequence[LayerRow], times: Times, peaks: Peaks | None) -> Iterator[Change]:
    """Products in codes between floats on every side: in floats too, the conversions around them go."""
    converting = {row.layer.name: row for row in rows if row.cause == CONVERSIONS}
    makers = {form.name: row for row in rows for form in row.layer.outputs}
    readers: dict[str, list[LayerRow]] = {}
    for row in rows:
        for name in dict.fromkeys(form.name for form in row.layer.inputs):
            readers.setdefault(name, []).append(row)
    for row in rows:
        if row.layer.precision not in CODE_PRECISIONS or not row.layer.operations or not row.layer.nodes:
            continue
        before = [makers.get(form.name) for form in row.layer.inputs]
        after = [one for form in row.layer.outputs for one in readers.get(form.name, ())]
        around = {one.layer.name: one for one in (*before, *after) if one is not None}
        to = _FLOATS.get(after[0].layer.outputs[0].dtype, "") if after and after[0].layer.outputs else ""
        if not to or None in before or not around.keys() <= converting.keys():
            continue
        found = predict(row, to, peaks, None, "")
        if found.gain_us is None or not all(_serves_only(one, row, readers) for one in around.values()):
            continue
        gain_us = found.gain_us + sum(one.time_us or 0.0 for one in around.values())
        node = row.layer.nodes[0]
        yield Change(
            what=f"'{node}' in {to} like all around it, so that {len(around)} conversions go",
            gain_ratio=gain_us / times.total_us if times.total_us else 0.0,
            basis=f"{found.basis}, with these conversions",
            command=f"quantrt build ... --exclude '{node}'",
        )


def _serves_only(one: LayerRow, row: LayerRow, readers: Mapping[str, Sequence[LayerRow]]) -> bool:
    """Whether a conversion of a layer's input or output has no use without that layer."""
    made = [reader for form in one.layer.outputs for reader in readers.get(form.name, ())]
    is_behind = any(form in row.layer.outputs for form in one.layer.inputs)
    return is_behind or all(reader.layer.name == row.layer.name for reader in made)
