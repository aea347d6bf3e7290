# SPDX-License-Identifier: Apache-2.0
import math
import types
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest

from quantrt.assign.accuracy.accuracy import Accuracy, drop_of, measure_accuracy
from quantrt.assign.accuracy.metric import find_metric
from quantrt.calibrate.dataset import Batch
from quantrt.errors import DataError
from quantrt.reference.row_sets import RowSet

Arrays = Mapping[str, np.ndarray]

LABELS = np.array([0, 1, 2, 0, 1])


def batches(x: np.ndarray, labels: np.ndarray | None = None, size: int = 2) -> Iterable[Batch]:
    for first in range(0, len(x), size):
        part = slice(first, first + size)
        named = {} if labels is None else {"labels": labels[part]}
        yield Batch({"x": x[part]}, named, first, len(x[part]))


def logits() -> np.ndarray:
    """float32 [5, 3]; the largest of each row is at LABELS."""
    return (np.eye(3, dtype=np.float32)[LABELS] * 2 + 0.1).astype(np.float32)


def output(x: Arrays) -> dict[str, np.ndarray]:
    return {"y": x["x"]}


def measure(
    metric: str, change: Callable[[np.ndarray], np.ndarray], *, labels: np.ndarray | None = LABELS, **options
) -> Accuracy:
    """The identity against the identity changed."""
    found = find_metric(metric, has_labels=labels is not None)
    return measure_accuracy(
        found, batches(logits(), labels), output, lambda x: {"y": change(x["x"])}, **options
    )


def test_top1_drop_is_relative_to_the_float_model():
    accuracy = measure("top1", lambda x: np.roll(x, 1, axis=1))
    assert (accuracy.float_score, accuracy.score, accuracy.drop_ratio) == (1.0, 0.0, 1.0)
    equal = measure("top1", lambda x: x)
    assert (equal.score, equal.drop_ratio, equal.sqnr_db, equal.samples) == (1.0, 0.0, math.inf, 5)
    doubled = measure("top1", lambda x: 2 * x)
    assert doubled.drop_ratio == 0.0 and doubled.sqnr_db == pytest.approx(0.0)


def test_cosine_drop_is_one_minus_the_cosine():
    assert measure("cosine", lambda x: 3 * x).drop_ratio == pytest.approx(0.0, abs=1e-12)
    assert measure("cosine", lambda x: -x).drop_ratio == pytest.approx(2.0)
    accuracy = measure("cosine", lambda x: x + 0.5)
    assert accuracy.drop_ratio == pytest.approx(1 - accuracy.cosine) and accuracy.float_score == 1.0


def test_sqnr_drop_is_noise_over_signal():
    accuracy = measure("sqnr", lambda x: 0.9 * x)
    assert accuracy.drop_ratio == pytest.approx(0.01, rel=1e-5)
    assert accuracy.score == pytest.approx(20.0, rel=1e-5) and accuracy.float_score == math.inf
    assert measure("sqnr", lambda x: x).drop_ratio == 0.0


@pytest.mark.parametrize("metric", ["top1", "cosine", "sqnr"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_output_that_is_not_finite_has_an_infinite_drop(metric: str, bad: float):
    def spoil(x: np.ndarray) -> np.ndarray:
        y = x.copy()
        y[0, np.argmin(x[0])] = bad
        return y

    assert measure(metric, spoil).drop_ratio == math.inf


@pytest.mark.parametrize("same", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_in_the_float_model_too_is_no_difference(same: float):
    masked = logits()
    masked[:, 0] = same

    def shifted(x: Arrays) -> dict[str, np.ndarray]:
        return {"y": x["x"] + np.float32(0.01)}

    accuracy = measure_accuracy(find_metric("sqnr", has_labels=False), batches(masked), output, shifted)
    assert 0 < accuracy.drop_ratio < 0.01
    finite = measure_accuracy(
        find_metric("sqnr", has_labels=False), batches(masked), output, lambda x: {"y": np.nan_to_num(x["x"])}
    )
    assert finite.drop_ratio == math.inf


def test_a_function_of_the_user_gets_all_outputs_and_labels(user_module: types.ModuleType):
    seen = []

    def mean(outputs, labels):
        seen.append((outputs, labels))
        return float(outputs["y"].mean())

    user_module.mean = mean
    accuracy = measure("metrics_of_a_user:mean", lambda x: x / 2)
    assert accuracy.metric == "metrics_of_a_user:mean"
    assert accuracy.drop_ratio == pytest.approx(0.5)
    (wanted, labels), (got, _) = seen
    assert wanted["y"].shape == got["y"].shape == (5, 3)
    np.testing.assert_array_equal(labels["labels"], LABELS)


@pytest.mark.parametrize(
    ("float_score", "score", "drop"),
    [
        (0.8, 0.6, 0.25),
        (-2.0, -3.0, 0.5),
        (-2.0, -1.0, -0.5),
        (0.0, -1.0, math.inf),
        (0.0, 1.0, 0.0),
        (0.0, 0.0, 0.0),
        (1.0, math.nan, math.inf),
        (math.inf, 1.0, math.inf),
        (1.0, math.inf, -math.inf),
        (0.0, math.nan, math.inf),
    ],
)
def test_the_drop_of_any_two_scores(user_module, float_score: float, score: float, drop: float):
    answers = iter([float_score, score])
    user_module.told = lambda outputs, labels: next(answers)
    assert measure("metrics_of_a_user:told", lambda x: x).drop_ratio == pytest.approx(drop)


def test_one_of_a_hundred_is_one_percent_and_no_more():
    assert (1.0 - 0.99) / 1.0 > 0.01  # in float64
    assert drop_of(1.0, 0.99) == 0.01
    assert drop_of(297 / 300, 294 / 300) == pytest.approx(3 / 297, abs=1e-12)


def test_ragged_outputs_reach_the_metric_as_one_array_per_sample(user_module: types.ModuleType):
    seen = []
    user_module.told = lambda outputs, labels: seen.append((outputs, labels)) or 1.0
    sizes = (3, 3, 5)

    def ragged() -> Iterable[Batch]:
        yield Batch({"x": np.ones((2, 3), np.float32)}, {"labels": np.array([0, 1])}, 0, 2)
        yield Batch({"x": np.ones((1, 5), np.float32)}, {"labels": np.array([2])}, 2, 1)

    measure_accuracy(find_metric("metrics_of_a_user:told", has_labels=True), ragged(), output, output)
    outputs, labels = seen[0]
    assert [array.shape for array in outputs["y"]] == [(size,) for size in sizes]
    assert labels["labels"].tolist() == [0, 1, 2]


def test_outputs_that_axis_0_does_not_count_are_kept_whole(user_module: types.ModuleType):
    seen = []
    user_module.told = lambda outputs, labels: seen.append(outputs) or 1.0

    def alone() -> Iterable[Batch]:
        for index, boxes in enumerate((4, 1, 2)):
            yield Batch({"x": np.ones((boxes, 6), np.float32)}, {"labels": np.array([0])}, index, 1)

    accuracy = measure_accuracy(
        find_metric("metrics_of_a_user:told", has_labels=True), alone(), output, output
    )
    assert accuracy.samples == 3
    shapes = [array.shape for array in seen[0]["y"]]
    assert shapes == [(4, 6), (6,), (2, 6)] or shapes == [(4, 6), (1, 6), (2, 6)]


def test_padding_rows_do_not_count():
    def padded() -> Iterable[Batch]:
        yield Batch({"x": logits()[:4]}, {"labels": LABELS[:4]}, 0, 4)
        yield Batch({"x": logits()[[4, 4, 4, 4]]}, {"labels": LABELS[4:]}, 4, 1)

    def spoilt_padding(x: Arrays) -> dict[str, np.ndarray]:
        y = x["x"].copy()
        if (y[0] == y[1]).all():
            y[1:] = math.nan
        return {"y": y}

    metric = find_metric("top1", has_labels=True)
    accuracy = measure_accuracy(metric, padded(), output, spoilt_padding, fixed_batch=4)
    assert (accuracy.samples, accuracy.score, accuracy.drop_ratio) == (5, 1.0, 0.0)


def test_integer_outputs_are_no_part_of_cosine_and_sqnr():
    def with_index(x: Arrays) -> dict[str, np.ndarray]:
        return {"i": np.argmax(x["x"], axis=1), "y": x["x"]}

    def other_index(x: Arrays) -> dict[str, np.ndarray]:
        return {"i": np.argmin(x["x"], axis=1), "y": x["x"]}

    metric = find_metric("sqnr", has_labels=False)
    assert measure_accuracy(metric, batches(logits()), with_index, other_index).drop_ratio == 0.0
    top1 = find_metric("top1", has_labels=True)
    assert measure_accuracy(top1, batches(logits(), LABELS), with_index, other_index).score == 1.0


def test_what_an_output_lacks_is_noise():
    """A detector that ends in non-maximum suppression finds another number of boxes in int8."""
    x = logits().astype(np.float64)
    kept, all_of = float((x[:, :2] ** 2).sum()), float((x**2).sum())
    found = measure("cosine", lambda x: x[:, :2])
    assert found.cosine == pytest.approx(kept / np.sqrt(kept * all_of), rel=1e-6)
    assert found.sqnr_db == pytest.approx(-10 * np.log10((all_of - kept) / all_of), rel=1e-6)


def test_an_output_that_a_larger_one_hides_is_named():
    def floats(inputs: Arrays) -> dict[str, np.ndarray]:
        return {"large": 1e3 * inputs["x"], "small": inputs["x"]}

    def engine(inputs: Arrays) -> dict[str, np.ndarray]:
        return floats(inputs) | {"small": inputs["x"] * np.float32(0.5)}

    found = measure_accuracy(find_metric("cosine", has_labels=False), batches(logits()), floats, engine)
    ((name, db),) = found.noisy
    assert found.drop_ratio < 1e-6 and name == "small"
    assert db == pytest.approx(-10 * np.log10(0.25), abs=1e-6)


def test_an_output_of_another_number_of_axes_is_an_error():
    with pytest.raises(DataError, match="compare"):
        measure("cosine", lambda x: x[:, 0])


def test_what_is_surely_over_the_budget_is_not_measured_to_the_end():
    found = find_metric("top1", has_labels=True)
    x = np.tile(logits(), (200, 1))
    asked = []

    def wrong(inputs: Arrays) -> dict[str, np.ndarray]:
        asked.append(len(inputs["x"]))
        return {"y": np.roll(inputs["x"], 1, axis=1)}

    many = list(batches(x, np.tile(LABELS, 200), size=8))
    accuracy = measure_accuracy(found, many, output, wrong, max_drop_ratio=0.01)
    assert (accuracy.samples, accuracy.drop_ratio, len(asked)) == (128, 1.0, 16)
    whole = measure_accuracy(found, many, output, output, max_drop_ratio=0.01)
    assert (whole.samples, whole.drop_ratio) == (1000, 0.0)


def test_rows_of_a_set_are_compared_with_those_they_are_nearest_to():
    one = RowSet("choose", ("y",), 3)
    found = measure("cosine", lambda x: np.roll(x, 1, axis=1), sets=(one,))
    assert (found.drop_ratio, found.sqnr_db) == (0.0, math.inf)
    (told,) = found.sets
    assert (told.node, told.found_ratio) == ("choose", 1.0)
    apart = measure("cosine", lambda x: np.roll(x, 1, axis=1))
    assert apart.drop_ratio > 0.9 and apart.sets == ()
