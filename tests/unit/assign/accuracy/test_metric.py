# SPDX-License-Identifier: Apache-2.0
"""Metrics by name, and what of a float model's score others can be held against."""

import math

import numpy as np
import pytest

from quantrt.assign.accuracy.metric import find_metric
from quantrt.errors import DataError, UsageError

LOGITS = {"y": np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1]]}
LABELS = {"labels": np.array([0, 1, 2, 0, 2])}


@pytest.mark.parametrize(
    ("has_labels", "chosen"), [(True, "top1"), (False, "cosine")], ids=["labels", "no labels"]
)
def test_auto_takes_what_the_data_allow(has_labels: bool, chosen: str):
    assert find_metric("auto", has_labels=has_labels).name == chosen


def test_top1_without_labels_is_refused():
    with pytest.raises(UsageError, match="without labels"):
        find_metric("top1", has_labels=False)


@pytest.mark.parametrize(("name", "hint"), [("top_1", "'top1'"), ("cosin", "'cosine'"), ("accuracy", "")])
def test_an_unknown_metric_names_the_nearest(name: str, hint: str):
    with pytest.raises(UsageError, match=f"unknown metric '{name}'") as caught:
        find_metric(name, has_labels=True)
    assert (caught.value.hint or "") == hint


def test_top1_needs_an_output_of_classes():
    metric = find_metric("top1", has_labels=True)
    assert metric.score_of(LOGITS, LABELS) == pytest.approx(0.8) and not metric.is_users
    with pytest.raises(DataError, match=r"no output has the shape \[samples, classes\]"):
        metric.score_of({"y": LOGITS["y"].sum(axis=1)}, LABELS)


def test_a_function_is_a_metric_with_its_name():
    metric = find_metric(lambda outputs, labels: len(labels["labels"]), has_labels=True)
    here = test_a_function_is_a_metric_with_its_name.__name__
    assert metric.is_users and metric.name == f"{__name__}:{here}.<locals>.<lambda>"
    assert metric.score_of(LOGITS, LABELS) == 5.0 and metric.each is None


def test_beside_nan_nothing_is_better_or_worse():
    metric = find_metric(lambda outputs, labels: math.nan, has_labels=True)
    assert math.isnan(metric.score_of(LOGITS, LABELS))
    with pytest.raises(UsageError, match="is no number for the float model") as caught:
        metric.float_score(LOGITS, LABELS)
    assert caught.value.expected == ("a number from outputs 'y' float32 [5, 3] and labels 'labels' int64 [5]")
