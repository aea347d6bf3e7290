# SPDX-License-Identifier: Apache-2.0
"""How much accuracy a candidate loses against the float model, on the user's metric and data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.assign.ahead import over
from quantrt.assign.collected import Collected
from quantrt.assign.surely_over import Looks, is_surely_over
from quantrt.calibrate.dataset import Batch
from quantrt.calibrate.readers.functions import failure_text, find_function
from quantrt.calibrate.records import Layout
from quantrt.config import DEFAULT_MIN_SQNR_DB
from quantrt.errors import DataError, InternalError, UsageError, close_match
from quantrt.reference.metrics import Error, in_one_shape, top1
from quantrt.reference.row_sets import ComparedSet, RowSet, RowTally, compared_sets, in_rows_of

__all__ = [
    "METRICS",
    "Accuracy",
    "Metric",
    "Run",
    "add_error",
    "check_labels",
    "comparable",
    "drop_of",
    "find_metric",
    "measure_accuracy",
]

Array = np.ndarray[Any, Any]
Outputs = Mapping[str, Array]
Run = Callable[[Mapping[str, Array]], Outputs]

METRICS = ("auto", "top1", "cosine", "sqnr")

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


@dataclass(frozen=True)
class Metric:
    """A named way to score a model.

    Attributes:
        name: as given by the user.
        score: (outputs, labels) -> float, larger is better; None for the metrics that compare outputs.
        each: the same of every sample, [samples]; `score` is their mean. None where it is no mean, or nobody
            knows whether it is one.
        margins: of each sample, from how near it is to another score; [samples]. With it `each` is 1 at most.
    """

    name: str
    score: Callable[[Mapping[str, Any], Mapping[str, Any]], float] | None
    each: Callable[[Mapping[str, Any], Mapping[str, Any]], Array] | None = None
    margins: Callable[[Mapping[str, Any]], Array] | None = None


def find_metric(name: str, *, has_labels: bool) -> Metric:
    """The metric called `name`: top1, cosine, sqnr, module:function, or auto.

    auto is top1 where there are labels, else cosine. A function is called once per model as
    `function(outputs, labels)`, both dicts of arrays [samples, ...], and returns a float, larger is better.
    Where samples differ in shape, or their outputs are not counted by axis 0, it gets a list with an array
    per sample instead.

    Raises:
        UsageError: no such metric or function, or top1 without labels.
    """
    if name == "auto":
        name = "top1" if has_labels else "cosine"
    if name == "top1":
        if not has_labels:
            raise UsageError(
                "cannot measure top1 without labels",
                hint="--labels, an array 'labels' in the data, or --metric cosine",
            )
        return Metric(name, _top1, _hits, _margins)
    if name in ("cosine", "sqnr"):
        return Metric(name, None)
    if ":" not in name:
        near = close_match(name, METRICS)
        raise UsageError(
            f"unknown metric '{name}'",
            expected="top1, cosine, sqnr or module:function",
            hint=f"'{near}'" if near else None,
        )
    return Metric(name, _load_function(name))


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
        UsageError: the user's metric returns no number.
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
        float_score, score = _score(metric, wanted.joined(), truth), _score(metric, found.joined(), truth)
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


def _score(metric: Metric, outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
    if metric.score is None:
        raise InternalError(f"the metric '{metric.name}' has no score")
    value = metric.score(outputs, labels)
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the metric '{metric.name}' returned no number", got=repr(value)[:80], expected="a float"
        ) from error


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


def _top1(outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
    return top1(*_logits_and_labels(outputs, labels))


def _hits(outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> Array:
    """1.0 for every sample whose largest logit is at the label, else 0.0."""
    logits, truth = _logits_and_labels(outputs, labels)
    hits: Array = (logits.argmax(axis=1) == truth).astype(np.float64)
    return hits


def _margins(outputs: Mapping[str, Any]) -> Array:
    """How far the largest logit of every sample is above the next; infinite where there is one class."""
    logits = _logits(outputs)
    if logits is None or logits.shape[1] < 2:
        return np.full(0 if logits is None else len(logits), np.inf)
    two = np.partition(logits, -2, axis=1)[:, -2:].astype(np.float64)
    margins: Array = two[:, 1] - two[:, 0]
    return margins


def _logits(outputs: Mapping[str, Any]) -> Array | None:
    return next((a for a in outputs.values() if isinstance(a, np.ndarray) and _is_logits(a)), None)


def _logits_and_labels(outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> tuple[Array, Array]:
    logits, truth = _logits(outputs), labels.get("labels", next(iter(labels.values()), None))
    if logits is None or truth is None:
        raise DataError(
            "cannot measure top1: no output has the shape [samples, classes]", hint="--metric module:function"
        )
    return logits, check_labels(np.asarray(truth), len(logits), logits.shape[1])


def check_labels(labels: Array, samples: int, classes: int | None) -> Array:
    """Labels [samples], of which each is the number of a class.

    Args:
        labels: [samples], or with further axes of 1.
        classes: None where it is not known.

    Raises:
        DataError: they are more or fewer, no whole numbers, or below 0 or beyond the last class.
    """
    if labels.size != samples:
        hint = "one whole number for each sample: `labels.argmax(axis=1)` of one-hot ones"
        raise DataError(
            "cannot measure top1 with these labels",
            got=f"shape {list(labels.shape)}",
            expected=f"[{samples}]",
            hint=hint,
        )
    found = labels.reshape(-1)
    if found.dtype.kind not in "iubf" or (found != np.floor(found)).any():
        raise DataError(
            "cannot measure top1 with labels that are no whole numbers",
            got=f"{found.dtype} such as {found[0]}",
            hint="`labels.astype('int64')` of numbers of classes, or --metric module:function",
        )
    if found.size and (found.min() < 0 or (classes is not None and found.max() >= classes)):
        raise DataError(
            "cannot measure top1: a label is of no class",
            got=f"labels from {found.min()} to {found.max()}",
            expected="0 or more"
            if classes is None
            else f"0 to {classes - 1}, as the model's outputs are numbered",
            hint="--metric cosine where the labels are of something else",
        )
    return found


def _is_logits(array: Array) -> bool:
    return array.ndim == 2 and array.dtype.kind == "f"


def _load_function(reference: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], float]:
    function = find_function(reference)

    def score(outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
        try:
            return function(outputs, labels)  # type: ignore[no-any-return]
        except Exception as error:  # whatever a function of the user's does
            truth = f"labels {', '.join(labels)}" if labels else "no labels"
            raise UsageError(
                f"the metric '{reference}' failed",
                got=failure_text(error),
                expected=f"a float from two dicts: outputs {', '.join(outputs)}; {truth}",
                hint="the same with --traceback, which shows where",
            ) from error

    return score
