# SPDX-License-Identifier: Apache-2.0
"""How much accuracy a candidate loses against the float model, on the user's metric and data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.assign.accuracy.ahead import over
from quantrt.assign.accuracy.collected import Collected
from quantrt.assign.accuracy.metric import Metric
from quantrt.assign.accuracy.surely_over import Looks, is_surely_over
from quantrt.calibrate.dataset import Batch
from quantrt.calibrate.records import Layout
from quantrt.config import DEFAULT_MIN_SQNR_DB
from quantrt.reference.metrics import Error, in_one_shape
from quantrt.reference.row_sets import ComparedSet, RowSet, RowTally, compared_sets, in_rows_of

__all__ = [
    "Accuracy",
    "Run",
    "add_error",
    "comparable",
    "drop_of",
    "measure_accuracy",
]

Array = np.ndarray[Any, Any]
Outputs = Mapping[str, Array]
Run = Callable[[Mapping[str, Array]], Outputs]

DROP_DIGITS = 12
"""Behind the point, of a drop: 0.99 of 1.0 has lost 0.01, and 0.010000000000000009 is more than that."""


@dataclass(frozen=True)
class Accuracy:
    """A candidate against the float model.

    Attributes:
        metric: its name.
        float_score, score: of the float model and the candidate; for cosine and sqnr (in dB) the float
            model's own score is 1 and infinity.
        drop_ratio: what the budget bounds; see `quantrt.config.Budget`.
        sqnr_db, cosine: over all float outputs together, whatever the metric.
        samples: how many were compared.
        float_samples: how many of them the float model ran on. Where it did not run on all, its score and the
            drop are at most what is told here, and sqnr_db and cosine are of the first samples.
        noisy: outputs that alone have less than DEFAULT_MIN_SQNR_DB, and what they have. In sqnr_db and
            cosine large outputs hide small ones. Only of metrics that compare outputs.
        sets: outputs whose rows have no order of their own, and what became of these rows.
    """

    metric: str
    float_score: float
    score: float
    drop_ratio: float
    sqnr_db: float
    cosine: float
    samples: int
    float_samples: int
    noisy: tuple[tuple[str, float], ...] = ()
    sets: tuple[ComparedSet, ...] = ()


def measure_accuracy(
    metric: Metric,
    batches: Iterable[Batch],
    float_run: Run,
    run: Run,
    *,
    fixed_batch: int | None = None,
    max_drop_ratio: float = math.inf,
    sets: Sequence[RowSet] = (),
) -> Accuracy:
    """Score a candidate and the float model on the same samples, in one pass.

    An output that is not finite where the float model's is makes the drop infinite, whatever the metric.

    Args:
        fixed_batch: rows of a batch that the model insists on; those that only pad it do not count.
        max_drop_ratio: the pass ends where the drop is surely more: top1 is a mean, whose error is known.
        sets: outputs whose rows have no order of their own, and are compared with those they are nearest to.

    Raises:
        DataError: the outputs do not fit the metric.
        UsageError: the user's metric fails, or returns no number.
    """
    layout = Layout(is_batched=True, fixed_batch=fixed_batch)
    samples, differences = 0, _Differences(sets, with_each=metric.score is None)
    wanted, found, labels = Collected(), Collected(), Collected()
    looks = Looks()
    each = map(over, (float_run, run), itertools.tee(batches))
    for (batch, wanted_all), (_, found_all) in zip(*each, strict=True):
        ref, got = (
            {name: layout.own_rows(array, batch.count) for name, array in outputs.items()}
            for outputs in (wanted_all, found_all)
        )
        differences.add(ref, got)
        samples += batch.count
        if metric.score is not None:
            wanted.add(ref, batch.count)
            found.add(got, batch.count)
            labels.add(batch.labels, batch.count)
        if metric.each is not None and looks.is_due(samples):
            truth = labels.joined()
            own, theirs = (metric.each(one.joined(), truth) for one in (wanted, found))
            if is_surely_over(own, theirs, max_drop_ratio):
                break
    error = differences.error
    if metric.score is None:
        float_score, score, drop = _relative(metric.name, error)
    else:
        truth = labels.joined()
        float_score = metric.float_score(wanted.joined(), truth)
        score = metric.score_of(found.joined(), truth)
        drop = drop_of(float_score, score)
    if not math.isfinite(error.noise) or math.isnan(drop):
        drop = math.inf
    scores = (float_score, score, drop, error.sqnr_db, error.cosine)
    return Accuracy(metric.name, *scores, samples, samples, differences.noisy, differences.sets)


class _Differences:
    """How the outputs of a candidate differ from the float model's, over the batches of a pass.

    Args:
        sets: outputs whose rows have no order of their own.
        with_each: whether each output by itself is looked at too, where there are several.
    """

    def __init__(self, sets: Sequence[RowSet], *, with_each: bool) -> None:
        self.error = Error()
        self._sets = sets
        self._with_each = with_each
        self._alone: dict[str, Error] = {}
        self._tallies = {one.node: RowTally() for one in sets}

    def add(self, ref: Outputs, got: Outputs) -> None:
        """Compare one more batch."""
        ordered = in_rows_of(ref, got, self._sets, self._tallies)
        add_error(self.error, ref, ordered)
        if self._with_each and len(ref) > 1:
            for name, array in ref.items():
                add_error(self._alone.setdefault(name, Error()), {name: array}, ordered)

    @property
    def noisy(self) -> tuple[tuple[str, float], ...]:
        """Outputs with less than DEFAULT_MIN_SQNR_DB by themselves."""
        each = ((name, one.sqnr_db) for name, one in self._alone.items())
        return tuple((name, db) for name, db in each if not db >= DEFAULT_MIN_SQNR_DB)

    @property
    def sets(self) -> tuple[ComparedSet, ...]:
        """What became of the rows of sets."""
        return compared_sets(self._sets, self._tallies)


def add_error(error: Error, ref: Outputs, got: Outputs) -> None:
    """Compare the float outputs of one more batch."""
    for name, array in ref.items():
        if array.dtype.kind == "f":
            error.add(*comparable(array, got[name]))


def comparable(ref: Array, got: Array) -> tuple[Array, Array]:
    """Both in one shape, without the elements where both are the same infinity, or NaN: masks and padding."""
    ref, got = in_one_shape(ref, got)
    if ref.shape != got.shape or np.isfinite(ref).all():
        return ref, got
    keep = np.isfinite(ref) | ~((ref == got) | (np.isnan(ref) & np.isnan(got)))
    return ref[keep], got[keep]


def _relative(name: str, error: Error) -> tuple[float, float, float]:
    if name == "cosine":
        return 1.0, error.cosine, max(1.0 - error.cosine, 0.0)
    return math.inf, error.sqnr_db, error.noise_ratio


def drop_of(float_score: float, score: float) -> float:
    """(float - engine) / |float| to DROP_DIGITS, NaN when a score is; negative for a better engine."""
    if float_score == score:
        return 0.0
    loss = float_score - score
    if float_score == 0.0 and not math.isnan(loss):
        return math.inf if loss > 0.0 else 0.0
    return round(loss / abs(float_score), DROP_DIGITS) if float_score else loss
