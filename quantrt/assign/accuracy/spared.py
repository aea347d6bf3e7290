# SPDX-License-Identifier: Apache-2.0
"""Accuracy beside a float model that runs only on the samples on which it may be better than the candidate.

Of a score that is a mean, and 1 at most on every sample, as top1 is: where the candidate has 1 the float
model has no more. So it runs where the candidate has less, and where the candidate itself is nearly of
another score, for there the float model may have less; elsewhere 1 is taken for its score.

    drop <= (F - C) / F,   F = mean score of the float model, or 1;   C = mean score of the candidate

That is a bound on all of the samples, and no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from quantrt.assign.accuracy.accuracy import Accuracy, add_error, drop_of
from quantrt.assign.accuracy.ahead import ahead
from quantrt.assign.accuracy.collected import Collected
from quantrt.assign.accuracy.metric import Metric
from quantrt.assign.accuracy.picked import picked
from quantrt.assign.accuracy.replayed import Again, Replayed
from quantrt.assign.accuracy.surely_over import Looks, is_surely_over
from quantrt.calibrate.dataset import Batch
from quantrt.errors import InternalError
from quantrt.reference.metrics import Error

__all__ = ["spared_accuracy"]

Array = np.ndarray[Any, Any]

LIKELY_ERRORS = 1.0
"""Standard errors by which a candidate may seem to be over the budget so far, and may well be inside."""

NEAR_RATIOS = (0.1, 0.3)
"""Of the samples on which the candidate has 1, those nearest to another score that the float model runs on,
until the bound is inside the budget: of four networks of CIFAR-10 the first are enough, behind the others it
runs on all."""


def spared_accuracy(
    metric: Metric,
    batches: Callable[[], Iterable[Batch]],
    floats: Replayed,
    candidate: Replayed,
    *,
    max_drop_ratio: float,
) -> Accuracy | None:
    """A candidate's accuracy if it is inside the budget for certain; None where more has to be measured.

    Both models run on the first samples, one after the other, until the candidate may well be inside.

    Args:
        metric: with `each` and `margins`.
        batches: the samples from the first on, every time; all of one layout, none filled up.
        floats, candidate: what they compute first stays known to them.
    """
    scoring = _Scoring(metric)
    stream = iter(batches())
    run = candidate.again()
    found, labels = Collected(), Collected()
    begun = _begin(scoring, stream, floats.again(), run, (found, labels), max_drop_ratio=max_drop_ratio)
    if begun is None:
        return None
    error, first_scores = begun
    for batch, made in run.over(stream):
        found.add(made, batch.count)
        labels.add(batch.labels, batch.count)
    outputs, truth = found.joined(), labels.joined()
    if not _are_finite(outputs):
        return None
    scores = scoring.each(outputs, truth)
    wanted = np.ones(len(scores))
    wanted[: len(first_scores)] = first_scores
    is_known = np.arange(len(scores)) < len(first_scores)
    for is_doubtful in _groups(scores, scoring.margins(outputs)):
        for places, rows in _rows(floats, batches, is_doubtful & ~is_known):
            wanted[places] = scoring.each(rows, {name: np.asarray(of)[places] for name, of in truth.items()})
            is_known[places] = True
            float_score, score = float(wanted.mean()), float(scores.mean())
            drop = drop_of(float_score, score)
            if drop <= max_drop_ratio:
                sqnr_db, cosine, ran = error.sqnr_db, error.cosine, int(is_known.sum())
                return Accuracy(metric.name, float_score, score, drop, sqnr_db, cosine, len(scores), ran)
    return None


def _rows(
    floats: Replayed, batches: Callable[[], Iterable[Batch]], is_picked: Array
) -> Iterator[tuple[Array, dict[str, Array]]]:
    """Places of samples, and the float model's outputs for them."""
    runs = ((places, partial(floats.run, inputs)) for places, inputs in picked(batches(), is_picked))
    for places, made in ahead(runs, floats.lanes):
        yield places, {name: array[: len(places)] for name, array in made.items() if array.ndim}


class _Scoring:
    """A metric whose samples are scored one by one."""

    def __init__(self, metric: Metric) -> None:
        if metric.each is None or metric.margins is None:
            raise InternalError(f"the metric '{metric.name}' has no scores of single samples")
        self.each, self.margins = metric.each, metric.margins


def _begin(
    scoring: _Scoring,
    stream: Iterator[Batch],
    float_run: Again,
    run: Again,
    collected: tuple[Collected, Collected],
    *,
    max_drop_ratio: float,
) -> tuple[Error, Array] | None:
    """Both on the first samples: how the outputs differ, and the float model's scores.

    None where the candidate seems to be outside the budget to the end.

    Args:
        collected: the candidate's outputs and the labels, which are added to.
    """
    found, labels = collected
    wanted, error, looks, samples = Collected(), Error(), Looks(), 0
    while part := _until(stream, looks.due - samples):
        for (batch, ref), (_, got) in zip(float_run.over(part), run.over(part), strict=True):
            add_error(error, ref, got)
            for arrays, rows in ((wanted, ref), (found, got), (labels, batch.labels)):
                arrays.add(rows, batch.count)
            samples += batch.count
        if not looks.is_due(samples):
            continue
        truth = labels.joined()
        floats, scores = (scoring.each(one.joined(), truth) for one in (wanted, found))
        if not math.isfinite(error.noise) or is_surely_over(floats, scores, max_drop_ratio):
            return None
        if not is_surely_over(floats, scores, max_drop_ratio, errors=LIKELY_ERRORS):
            return error, floats
    return None


def _until(stream: Iterator[Batch], samples: float) -> list[Batch]:
    """The next batches, of so many samples together; fewer at the end."""
    taken: list[Batch] = []
    while sum(batch.count for batch in taken) < samples and (batch := next(stream, None)) is not None:
        taken.append(batch)
    return taken


def _are_finite(outputs: Mapping[str, Any]) -> bool:
    arrays = (part for value in outputs.values() for part in (value if isinstance(value, list) else [value]))
    return all(bool(np.isfinite(array).all()) for array in arrays if array.dtype.kind == "f")


def _groups(scores: Array, margins: Array) -> Iterator[Array]:
    """Samples on which the float model may have another score than 1, or more than the candidate.

    Those on which the candidate has less come first: where the float model has less too, a run of it tells
    most.
    """
    is_right = scores >= 1.0
    yield ~is_right
    for near_ratio in NEAR_RATIOS if is_right.any() else ():
        yield is_right & (margins <= np.quantile(margins[is_right], near_ratio))
