# SPDX-License-Identifier: Apache-2.0
"""A user's metric is tried on the float model before a build takes its time, and on no more than it needs."""

import logging
from collections.abc import Callable

import numpy as np
import pytest

from quantrt.assign.accuracy.checked import Checked
from quantrt.assign.accuracy.metric import find_metric
from quantrt.assign.accuracy.try_metric import try_metric
from quantrt.calibrate.dataset import open_dataset
from quantrt.errors import UsageError
from quantrt.model.model import Model
from tests.nets import net, samples

IDENTITY = "net (float[N,2] x) => (float[N,2] y) { y = Neg(x) }"
X = samples(20, 2)
SORTED = np.repeat([0, 1], 10)
FIRST = 8


def tried(
    metric: Callable, labels: np.ndarray | None = SORTED, *, model: Model | None = None, x: np.ndarray = X
) -> list[tuple[int, int | None]]:
    """What is told of progress."""
    model, seen = model or net(IDENTITY), []
    arrays = {"x": x} if labels is None else {"x": x, "labels": labels}
    data = Checked("validation data", open_dataset(arrays, model.inputs))
    metric = find_metric(metric, has_labels=labels is not None)
    try_metric(metric, data, model.graph, lambda done, total: seen.append((done, total)))
    return seen


def test_a_metric_that_works_is_called_once_with_a_first_batch(caplog: pytest.LogCaptureFixture):
    calls = []

    def score(outputs, labels):
        calls.append((outputs["y"], labels["labels"]))
        return outputs["y"].mean()

    with caplog.at_level(logging.INFO, "quantrt"):
        assert tried(score) == []
    ((y, labels),) = calls
    np.testing.assert_array_equal(y, -X[:FIRST])
    np.testing.assert_array_equal(labels, SORTED[:FIRST])
    assert f"is {-X[:FIRST].mean():.6g} on the first 8 samples" in caplog.text
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_one_that_needs_more_samples_than_a_batch_gets_all(caplog: pytest.LogCaptureFixture):
    def two_classes(outputs, labels):
        if len(np.unique(labels["labels"])) < 2:
            raise ValueError("only one class is present")
        return 1.0

    assert tried(two_classes) == [(8, 20), (16, 20), (20, 20)]
    assert "failed on the first 8 samples (ValueError: only one class is present" in caplog.text
    assert "it is tried on more, before anything is built" in caplog.text


def test_one_that_is_nan_on_a_batch_gets_all_too():
    seen = []

    def where_ones_are(outputs, labels):
        seen.append(len(outputs["y"]))
        return float(outputs["y"][labels["labels"] == 1].mean()) if labels["labels"].any() else np.nan

    tried(where_ones_are)
    assert seen == [8, 20]


def test_no_more_samples_are_taken_than_it_needs():
    """Two of a correlation have none; the float model runs on a few, and not on all."""
    seen = []

    def spread(outputs, labels):
        seen.append(len(outputs["y"]))
        return 1.0 if seen[-1] > 100 else np.nan

    progress = tried(spread, None, x=samples(1000, 2))
    assert seen == [8, 32, 128] and progress[-1] == (120, 1000)


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (lambda outputs, labels: outputs["z"], "failed"),
        (lambda outputs, labels: np.nan, "is no number for the float model"),
        (lambda outputs, labels: outputs["y"], "returned no number"),
    ],
    ids=["raises", "NaN", "array"],
)
def test_one_that_fails_on_all_is_told(metric: Callable, text: str):
    with pytest.raises(UsageError, match=text) as caught:
        tried(metric)
    assert "outputs 'y' float32 [20, 2] and labels 'labels' int64 [20]" in caught.value.expected


def test_where_the_first_batch_is_all_nothing_is_called_twice(caplog: pytest.LogCaptureFixture):
    calls = []
    with pytest.raises(UsageError, match="NaN") as caught:
        tried(lambda outputs, labels: calls.append(outputs) or np.nan, None, x=X[:FIRST])
    assert len(calls) == 1 and caplog.text == ""
    assert caught.value.expected == "a number from outputs 'y' float32 [8, 2] and no labels"


def test_rows_that_pad_a_fixed_batch_are_not_scored():
    calls = []
    model = net("net (float[3,2] x) => (float[3,2] y) { y = Neg(x) }")
    data = Checked("validation data", open_dataset({"x": X[:2]}, model.inputs), batch_size=3)
    metric = find_metric(lambda outputs, labels: calls.append(outputs["y"].shape) or 1.0, has_labels=False)
    try_metric(metric, data, model.graph, lambda done, total: None)
    assert calls == [(2, 2)]


def test_metrics_of_ours_and_no_data_need_no_trial():
    model = net(IDENTITY)
    for metric, data in (("cosine", {"x": X}), (lambda outputs, labels: 1 / 0, None)):
        checked = Checked("data", None if data is None else open_dataset(data, model.inputs))
        try_metric(find_metric(metric, has_labels=False), checked, None, lambda done, total: None)


def test_what_the_runtime_cannot_run_is_left_to_the_build(caplog: pytest.LogCaptureFixture):
    model = net("net (float[N,2] x) => (float[N,2] y) { s = Constant<value_ints=[3,3]>() y = Reshape(x, s) }")
    with caplog.at_level(logging.INFO, "quantrt"):
        tried(lambda outputs, labels: 1 / 0, model=model)
    assert "is not tried before the build" in caplog.text
