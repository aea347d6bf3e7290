# SPDX-License-Identifier: Apache-2.0
"""How much accuracy a candidate loses against the float model, on the user's metric and data."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quantrt.calibrate.dataset import Batch
from quantrt.errors import DataError, UsageError, close_match
from quantrt.reference.metrics import Error

__all__ = ["METRICS", "Accuracy", "Metric", "find_metric", "measure_accuracy"]

Array = np.ndarray[Any, Any]
Outputs = Mapping[str, Array]
Run = Callable[[Mapping[str, Array]], Outputs]

METRICS = ("auto", "top1", "cosine", "sqnr")


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
    """

    metric: str
    float_score: float
    score: float
    drop_ratio: float
    sqnr_db: float
    cosine: float
    samples: int


@dataclass
class _Collected:
    """Outputs of one model over a dataset, kept only when the metric needs them."""

    outputs: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, outputs: Outputs, count: int) -> None:
        for name, array in outputs.items():
            self.outputs.setdefault(name, []).append(array[:count] if array.ndim else array)

    def joined(self) -> dict[str, Any]:
        return {name: _join(parts) for name, parts in self.outputs.items()}


@dataclass(frozen=True)
class Metric:
    """A named way to score a model.

    Attributes:
        name: as given by the user.
        score: (outputs, labels) -> float, larger is better; None for the metrics that compare outputs.
    """

    name: str
    score: Callable[[Mapping[str, Any], Mapping[str, Any]], float] | None


def find_metric(name: str, *, has_labels: bool) -> Metric:
    """The metric called `name`: top1, cosine, sqnr, module:function, or auto.

    auto is top1 where there are labels, else cosine. A function is called once per model as
    `function(outputs, labels)`, both dicts of arrays [samples, ...] (lists where shapes differ), and returns a
    float, larger is better.

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
        return Metric(name, _top1)
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


def measure_accuracy(metric: Metric, batches: Iterable[Batch], float_run: Run, run: Run) -> Accuracy:
    """Score a candidate and the float model on the same samples, in one pass.

    Raises:
        DataError: the outputs are not finite where the float model's are, or do not fit the metric.
    """
    error, samples = Error(), 0
    wanted, found = _Collected(), _Collected()
    labels = _Collected()
    for batch in batches:
        ref, got = float_run(batch.inputs), run(batch.inputs)
        for name, array in ref.items():
            if array.dtype.kind == "f":
                keep = slice(None) if array.ndim == 0 or array.shape[0] < batch.count else slice(batch.count)
                error.add(array[keep] if array.ndim else array, got[name][keep] if array.ndim else got[name])
        samples += batch.count
        if metric.score is not None:
            wanted.add(ref, batch.count)
            found.add(got, batch.count)
            labels.add(batch.labels, batch.count)
    if metric.score is None:
        float_score, score, drop = _relative(metric.name, error)
    else:
        truth = labels.joined()
        float_score = float(metric.score(wanted.joined(), truth))
        score = float(metric.score(found.joined(), truth))
        drop = _drop(float_score, score)
    return Accuracy(metric.name, float_score, score, drop, error.sqnr_db, error.cosine, samples)


def _relative(name: str, error: Error) -> tuple[float, float, float]:
    if name == "cosine":
        return 1.0, error.cosine, _at_least_zero(1.0 - error.cosine)
    return math.inf, error.sqnr_db, error.noise_ratio


def _drop(float_score: float, score: float) -> float:
    """(float - engine) / |float|; NaN never passes a budget."""
    if math.isnan(score) or math.isnan(float_score):
        return math.inf
    if float_score == score:
        return 0.0
    return (float_score - score) / abs(float_score) if float_score else math.inf


def _at_least_zero(value: float) -> float:
    return math.inf if math.isnan(value) else max(value, 0.0)


def _top1(outputs: Mapping[str, Any], labels: Mapping[str, Any]) -> float:
    from quantrt.reference.metrics import top1

    logits = next((a for a in outputs.values() if isinstance(a, np.ndarray) and a.ndim == 2), None)
    truth = labels.get("labels", next(iter(labels.values()), None))
    if logits is None or truth is None:
        raise DataError(
            "cannot measure top1: no output has the shape [samples, classes]", hint="--metric module:function"
        )
    return top1(logits, np.asarray(truth).reshape(-1))


def _join(parts: list[Array]) -> Any:
    if parts and all(part.ndim and part.shape[1:] == parts[0].shape[1:] for part in parts):
        return np.concatenate(parts)
    return parts


def _load_function(reference: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], float]:
    module_name, _, function_name = reference.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name, None)
    except ImportError as error:
        raise UsageError(f"cannot import the metric '{reference}'", got=str(error)) from error
    if not callable(function):
        raise UsageError(f"cannot use the metric '{reference}'", got=f"no function '{function_name}' in it")
    return function  # type: ignore[no-any-return]
