# SPDX-License-Identifier: Apache-2.0
"""Labels of classes: a whole number for each sample, which counts the outputs of a classifier from 0 on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from quantrt.assign.accuracy.metric import Metric, check_labels, find_metric
from quantrt.budget import MetricFunction
from quantrt.calibrate.dataset import Dataset
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["class_count", "is_guessing", "metric_of_data"]

STANDARD_ERRORS = 2.0
"""Above what guessing gives: 19 of 20 runs of guesses are below."""


def metric_of_data(
    asked: str | MetricFunction, data: Dataset | None, outputs: Sequence[TensorSpec]
) -> Metric:
    """The metric that was asked for, of samples whose first one tells whether they have labels.

    Raises:
        UsageError: there is no such metric, or it needs labels.
        DataError: top1, and the first sample's label is none that the model's outputs can have.
    """
    labels: dict[str, Any] = {} if data is None else next(iter(data.batches(1, 1))).labels
    metric = find_metric(asked, has_labels=bool(labels))
    if metric.name == "top1":
        first = np.asarray(labels.get("labels", next(iter(labels.values()), 0)))
        check_labels(first[:1], 1, class_count(outputs))
    return metric


def class_count(outputs: Sequence[TensorSpec]) -> int | None:
    """How many classes the logits have: the first floats [samples, classes]; None where that is not known."""
    sizes = (spec.shape[1] for spec in outputs if spec.shape is not None and len(spec.shape) == 2
             if spec.dtype.startswith(("float", "bfloat")))  # fmt: skip
    size = next(sizes, None)
    return size if isinstance(size, int) else None


def is_guessing(hit_ratio: float, samples: int, classes: int) -> bool:
    """Whether so many hits are no more than guessing gives: 1/C, and two standard errors of N guesses."""
    by_chance = 1.0 / classes
    return hit_ratio <= by_chance + STANDARD_ERRORS * math.sqrt(by_chance * (1.0 - by_chance) / samples)
