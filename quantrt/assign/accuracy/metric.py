# SPDX-License-Identifier: Apache-2.0
"""What accuracy is measured by: a metric of ours by its name, or a function of the user's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.assign.accuracy.user_metric import UserMetric, given
from quantrt.budget import MetricFunction
from quantrt.errors import DataError, InternalError, UsageError, close_match
from quantrt.reference.metrics import top1

__all__ = ["METRICS", "Metric", "check_labels", "find_metric"]

Array = np.ndarray[Any, Any]
Score = Callable[[Mapping[str, Any], Mapping[str, Any]], float]

METRICS = ("auto", "top1", "cosine", "sqnr")


@dataclass(frozen=True)
class Metric:
    """A named way to score a model.

    Attributes:
        name: as given by the user; of a function `module:function`.
        score: (outputs, labels) -> float, larger is better; None for the metrics that compare outputs.
        each: the same of every sample, [samples]; `score` is their mean. None where it is no mean, or nobody
            knows whether it is one.
        margins: of each sample, from how near it is to another score; [samples]. With it `each` is 1 at most.
    """

    name: str
    score: Score | None
    each: Callable[[Mapping[str, Any], Mapping[str, Any]], Array] | None = None
    margins: Callable[[Mapping[str, Any]], Array] | None = None

    @property
    def is_users(self) -> bool:
        """Whether it is a function of the user's, of which nothing is known."""
        return isinstance(self.score, UserMetric)

    def score_of(self, outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
        """The score of one model's outputs; it may be NaN.

        Raises:
            UsageError: the user's function fails, or returns no number.
            DataError: outputs or labels do not fit the metric.
        """
        if self.score is None:
            raise InternalError(f"the metric '{self.name}' has no score")
        return self.score(outputs, labels)

    def float_score(self, outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
        """That of the float model, which others are held against.

        Raises:
            UsageError: as `score_of`; or it is NaN, beside which nothing can be better or worse.
        """
        score = self.score_of(outputs, labels)
        if math.isnan(score):
            raise UsageError(
                f"the metric '{self.name}' is no number for the float model",
                got="NaN",
                expected=f"a number from {given(outputs, labels)}",
            )
        return score


def find_metric(metric: str | MetricFunction, *, has_labels: bool) -> Metric:
    """A metric: top1, cosine, sqnr, a function or its name `module:function`, or auto.

    auto is top1 where there are labels, else cosine. A function is called once per model as
    `function(outputs, labels)`, both dicts of arrays [samples, ...], and returns a float, larger is better.
    Where samples differ in shape, or their outputs are not counted by axis 0, it gets a list with an array
    per sample instead.

    Raises:
        UsageError: no such metric or function, one that takes no two arguments, or top1 without labels.
    """
    if not isinstance(metric, str) or ":" in metric:
        user = UserMetric(metric)
        return Metric(user.name, user)
    name = metric
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
    near = close_match(name, METRICS)
    raise UsageError(
        f"unknown metric '{name}'",
        expected="top1, cosine, sqnr or module:function",
        hint=f"'{near}'" if near else None,
    )


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
