# SPDX-License-Identifier: Apache-2.0
"""What is known of a drop by a float model that runs on a part of the samples."""

from collections.abc import Iterable, Mapping
from contextlib import closing

import numpy as np
import pytest

from quantrt.assign.accuracy.accuracy import Accuracy, measure_accuracy
from quantrt.assign.accuracy.checked import LEAST_SPARED, Checked
from quantrt.assign.accuracy.metric import Metric, find_metric
from quantrt.assign.accuracy.replayed import Replayed
from quantrt.assign.accuracy.spared import spared_accuracy
from quantrt.calibrate.dataset import Batch, open_dataset
from quantrt.config import BuildConfig
from quantrt.errors import InternalError
from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.runtime.onnxruntime.executor import OnnxRuntimeExecutor
from tests.nets import quantized, resnet, samples

TOP1 = find_metric("top1", has_labels=True)
COUNT, CLASSES = 2000, 5
WEAK_RATIO = 0.2
"""Of the samples, on which the float model is nearly undecided."""


class Counted:
    """A model given by its logits, whose samples are their own places; counts the rows that it runs on."""

    def __init__(self, logits: np.ndarray) -> None:
        self.logits, self.rows = logits, 0

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.rows += len(inputs["x"])
        return {"y": self.logits[inputs["x"][:, 0].astype(int)]}


class Both:
    """A float model that is right on 85 % of its samples, and one whose logits have noise."""

    def __init__(self, rng: np.random.Generator, noise: float, *, wrong: int = 0) -> None:
        self.labels = rng.integers(CLASSES, size=COUNT)
        margins = np.where(rng.random(COUNT) < WEAK_RATIO, 0.1, 3.0)
        said = np.where(rng.random(COUNT) < 0.85, self.labels, (self.labels + 1) % CLASSES)
        logits = np.eye(CLASSES, dtype=np.float32)[said] * margins[:, None].astype(np.float32)
        spoiled = logits + rng.normal(0, noise, logits.shape).astype(np.float32)
        spoiled[rng.choice(COUNT, wrong, replace=False)] *= -1.0
        self.float, self.candidate = Counted(logits), Counted(spoiled)

    def batches(self, size: int = 8) -> Iterable[Batch]:
        x = np.arange(COUNT, dtype=np.float32)[:, None]
        for first in range(0, COUNT, size):
            part = slice(first, min(first + size, COUNT))
            yield Batch({"x": x[part]}, {"labels": self.labels[part]}, first, part.stop - first)

    def exact(self) -> Accuracy:
        found = measure_accuracy(TOP1, self.batches(), self.float, self.candidate)
        self.float.rows = self.candidate.rows = 0
        return found

    def spared(self, max_drop_ratio: float) -> Accuracy | None:
        models = Replayed(self.float), Replayed(self.candidate)
        return spared_accuracy(TOP1, self.batches, *models, max_drop_ratio=max_drop_ratio)


@pytest.mark.parametrize("seed", range(5))
def test_a_drop_inside_the_budget_is_bounded_without_most_of_the_float_runs(seed: int):
    both = Both(np.random.default_rng(seed), noise=0.01)
    exact = both.exact()
    found = both.spared(0.005)
    assert found is not None
    assert exact.drop_ratio <= found.drop_ratio <= 0.005
    assert found.float_score >= exact.float_score and found.score == exact.score
    assert found.samples == COUNT and found.float_samples < 0.4 * COUNT
    assert both.candidate.rows == COUNT and both.float.rows <= found.float_samples + 8


def test_the_figures_are_exact_where_all_that_differs_is_nearly_undecided():
    """Noise turns weak samples alone, and weak ones are a fifth of all: the second look finds them all."""
    both = Both(np.random.default_rng(0), noise=0.05)
    exact = both.exact()
    found = both.spared(exact.drop_ratio + 1e-6)
    assert found is not None
    assert found.drop_ratio == pytest.approx(exact.drop_ratio, abs=1e-12)


@pytest.mark.parametrize(("wrong", "budget"), [(60, 0.005), (400, 0.005)])
def test_what_is_outside_the_budget_is_left_to_whoever_measures_all(wrong: int, budget: float):
    both = Both(np.random.default_rng(0), noise=0.0, wrong=wrong)
    assert both.exact().drop_ratio > budget
    assert both.spared(budget) is None


def test_what_is_far_outside_ends_with_the_first_samples():
    both = Both(np.random.default_rng(0), noise=0.0, wrong=1600)
    both.exact()
    assert both.spared(0.005) is None
    assert (both.float.rows, both.candidate.rows) == (128, 128)


@pytest.mark.parametrize("place", [3, COUNT - 1], ids=["seen first", "seen later"])
def test_an_output_that_is_not_finite_is_not_bounded(place: int):
    both = Both(np.random.default_rng(0), noise=0.0)
    both.candidate.logits[place, 0] = np.nan
    assert both.spared(0.005) is None


def test_a_metric_without_margins_has_no_such_bound():
    metric = Metric("mine", lambda outputs, labels: 1.0)
    both = Both(np.random.default_rng(0), noise=0.0)
    with pytest.raises(InternalError, match="no scores of single samples"):
        spared_accuracy(
            metric, both.batches, Replayed(both.float), Replayed(both.candidate), max_drop_ratio=0.1
        )


def test_margins_are_between_the_two_largest_logits():
    assert TOP1.margins is not None
    logits = np.array([[1.0, 4.0, 2.5], [-1.0, -1.0, -7.0]], np.float32)
    assert TOP1.margins({"y": logits}).tolist() == [1.5, 0.0]
    assert TOP1.margins({"y": logits[:, :1]}).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize(
    ("count", "budget", "is_spared", "fewer"),
    [
        (LEAST_SPARED, 0.2, True, True),
        (LEAST_SPARED, 0.2, False, False),
        (LEAST_SPARED - 1, 0.2, True, False),
        (LEAST_SPARED, -0.5, True, False),
    ],
    ids=["many", "not asked for", "few", "outside"],
)
def test_engines_are_judged_as_by_all_samples(count: int, budget: float, *, is_spared: bool, fewer: bool):
    """A small network of one library in FP32 and in codes, and labels that FP32 gives."""
    model, data = resnet(), samples(count, 3, 16, 16)
    coded = lower_to_onnxruntime(write(quantized(model, ORT, {"x": data[:64]})))
    lowered = lower_to_onnxruntime(model.graph)
    with (
        closing(OnnxRuntimeExecutor(lowered, ExecOptions())) as floats,
        closing(OnnxRuntimeExecutor(coded, ExecOptions())) as codes,
    ):
        labels = floats.run({"x": data})["y"].argmax(axis=1)
        truth = open_dataset({"x": data, "labels": labels}, model.inputs)
        checked = Checked.choose(truth, None, BuildConfig(), model)
        exact = checked.measure(TOP1, Replayed(floats.run), codes.run, lambda done, total: None)
        found = checked.measure(
            TOP1,
            Replayed(floats.run),
            codes.run,
            lambda done, total: None,
            max_drop_ratio=budget,
            is_spared=is_spared,
        )
    assert exact is not None and found is not None
    assert (exact.float_score, exact.samples, exact.float_samples) == (1.0, count, count)
    if budget < 0:
        assert found.drop_ratio > budget
    else:
        assert exact.drop_ratio <= found.drop_ratio <= budget
    if fewer:
        assert found.score == exact.score and found.float_samples < found.samples == count
    else:
        assert found.float_samples == found.samples
