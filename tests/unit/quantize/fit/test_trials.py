# SPDX-License-Identifier: Apache-2.0
"""What was searched or scaled is taken where samples gain that it was not chosen on."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.fit.fit import NOT_CORRECTED, UNSEEN_GAIN, fit
from quantrt.quantize.fit.reference import FIT_SAMPLES, LEAST_MORE, observe_reference, sample_reference
from quantrt.quantize.fit.trials import RANGE_GAIN, SEARCH_GAIN, SEARCHED, Trials
from quantrt.quantize.quantize import quantize
from quantrt.quantize.targets import ORT
from tests.nets import constant, net, nodes, observe, samples, weights

CONFIG = QuantizeConfig(range_search=True, equalization=False)
PLAIN = replace(CONFIG, range_search=False)
OPTIONS = CalibrationConfig(method="minmax")
COUNT = FIT_SAMPLES + 2 * LEAST_MORE
RARE = 20
"""Times as wide as others is one row of each eight behind the first."""


def model():
    return net(
        "net (float[N,16] x) => (float[N,8] y) { h = Relu(x) y = MatMul(h, w) }", weights({"w": (16, 8)})
    )


def model_with_bias():
    text = "net (float[N,16] x) => (float[N,8] y) { y = Gemm(x, w, b) }"
    return net(text, weights({"w": (16, 8), "b": (8,)}))


def rows(*, first_rare: int) -> np.ndarray:
    x = samples(COUNT, 16)
    x[first_rare::8] *= RARE
    return x


def fitted(x: np.ndarray, stats_of: np.ndarray, *, limit: int | None = None):
    """The method that fits `x`, where ranges are those of other samples."""
    made = model()
    stats = observe(made, (ORT,), {"x": stats_of})
    options = replace(OPTIONS, max_samples=limit)
    reference = sample_reference(made, open_dataset({"x": x}, made.inputs), CONFIG, options, batch_size=8)
    return fit(made, stats, ORT, reference, config=CONFIG, calibration=options)


def test_ranges_that_clip_what_is_rare_are_not_taken():
    x = rows(first_rare=FIT_SAMPLES)
    assert fitted(x, x).method == "minmax"


@pytest.mark.parametrize("limit", [None, FIT_SAMPLES, FIT_SAMPLES + LEAST_MORE - 1])
def test_ranges_that_all_samples_gain_by_are_taken(limit: int | None):
    wide = rows(first_rare=FIT_SAMPLES)
    made = fitted(rows(first_rare=COUNT), wide, limit=limit)
    assert made.method == "minmax" + SEARCHED
    assert made.noise_ratios[made.method] < RANGE_GAIN * made.noise_ratios["minmax"]


def test_too_few_further_samples_say_nothing():
    """The halves of the first samples decide, and gain."""
    x = rows(first_rare=FIT_SAMPLES)
    assert fitted(x, x, limit=FIT_SAMPLES + LEAST_MORE - 1).method == "minmax" + SEARCHED


def test_without_any_other_samples_the_gain_on_those_searched_counts():
    x = rows(first_rare=COUNT)
    made = fitted(x, rows(first_rare=FIT_SAMPLES), limit=8)
    assert made.method == "minmax" + SEARCHED


@pytest.mark.parametrize(
    ("first_rare", "limit", "holds"),
    [(COUNT, None, True), (FIT_SAMPLES, None, False), (FIT_SAMPLES, FIT_SAMPLES + LEAST_MORE - 1, True)],
    ids=["all alike", "others clipped", "too few others"],
)
def test_a_gain_holds_where_further_samples_gain_too(first_rare: int, limit: int | None, holds: bool):
    made, x = model(), rows(first_rare=first_rare)
    options = replace(OPTIONS, max_samples=limit)
    reference = sample_reference(made, open_dataset({"x": x}, made.inputs), CONFIG, options, batch_size=8)
    trials = Trials(reference)
    for label, seen in (("wide", rows(first_rare=FIT_SAMPLES)), ("narrow", x[:FIT_SAMPLES])):
        trials.models[label] = quantize(made, observe(made, (ORT,), {"x": seen}), ORT, CONFIG, OPTIONS)
    assert trials.better("wide", "narrow", trials.models["narrow"], UNSEEN_GAIN) == "narrow"
    assert trials.holds("wide", "narrow", UNSEEN_GAIN) == holds


@pytest.mark.parametrize(("times", "is_kept"), [(1, True), (200, False)])
def test_a_correction_that_costs_more_than_it_gains_is_dropped_and_told(times: int, is_kept: bool):
    """Means as of a few samples far louder than the others."""
    made, x = model_with_bias(), samples(COUNT, 16)
    reference = uncorrected_reference(made, x)
    loud = {name: mean + times - 1 for name, mean in (reference.means or {}).items()}
    found = fit_auto(made, x, replace(reference, means=loud))
    method = found.method.removesuffix(NOT_CORRECTED)
    assert (found.method == method) == is_kept
    assert (found.means is not None) == is_kept
    assert any("biases are not corrected" in note for note in found.model.notes) != is_kept
    bias = constant(nodes(found.model.graph, "Gemm")[0].inputs[2])
    assert np.array_equal(bias, constant(nodes(made.graph, "Gemm")[0].inputs[2])) != is_kept
    ratios = found.noise_ratios
    assert (ratios[method + NOT_CORRECTED] < SEARCH_GAIN * ratios[method]) != is_kept


def test_a_correction_that_further_samples_gain_by_is_kept():
    """The first samples lose by it, and the others gain: those that it was made on say less."""
    made, x = model_with_bias(), samples(COUNT, 16) + 4
    x[:FIT_SAMPLES] -= 8
    later = observe_reference(made, [{"x": x[FIT_SAMPLES:]}], PLAIN)
    found = fit_auto(made, x, replace(uncorrected_reference(made, x), means=later.means))
    assert found.noise_ratios[found.method + NOT_CORRECTED] < found.noise_ratios[found.method]


def uncorrected_reference(made, x: np.ndarray):
    data = open_dataset({"x": x}, made.inputs)
    return sample_reference(made, data, PLAIN, CalibrationConfig(), batch_size=8)


def fit_auto(made, x: np.ndarray, reference):
    """By the best range method."""
    stats = observe(made, (ORT,), {"x": x})
    return fit(made, stats, ORT, reference, config=PLAIN, calibration=CalibrationConfig())
