# SPDX-License-Identifier: Apache-2.0
"""One pass tells what separate ones did: ranges, channel means, outputs, and ranges of equalized values."""

import numpy as np
import pytest

from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.fit.equalized import EQUALIZED, LEAST_SAMPLES, SAMPLES, equalize
from quantrt.quantize.fit.fit import FIT_SAMPLES, fit, sample_reference
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets.onnxruntime import ORT
from tests.nets import net, samples, weights

CONFIG, OPTIONS = QuantizeConfig(), CalibrationConfig()
MANY = SAMPLES + LEAST_SAMPLES
UNEVEN = np.array([1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001], np.float32)
"""Ranges of the eight channels between two layers."""


def model():
    text = """net (float[N,4,6,6] x) => (float[N,8,6,6] y) {
      h = Conv(x, w, b) r = Relu(h) y = Conv<group=8, pads=[1,1,1,1]>(r, d) }"""
    arrays = weights({"w": (8, 4, 1, 1), "b": (8,), "d": (8, 1, 3, 3)})
    arrays["w"] *= UNEVEN.reshape(-1, 1, 1, 1)
    arrays["b"] *= UNEVEN
    return net(text, arrays)


def observed(count: int):
    made = model()
    data = open_dataset({"x": samples(count, 4, 6, 6)}, made.inputs)
    names = observed_values(made, (ORT,), CONFIG)
    return made, data, names, observe(made, names, data, CONFIG, OPTIONS)


def test_ranges_are_those_of_a_pass_for_them_alone():
    made, data, names, (stats, _) = observed(MANY)
    assert stats == collect(made, names, data, OPTIONS)


def test_means_and_outputs_are_those_of_the_first_samples():
    made, data, _, (_, reference) = observed(MANY)
    alone = sample_reference(made, data, CONFIG, OPTIONS)
    assert len(reference.batches) == FIT_SAMPLES
    for got, want in ((reference.batches, alone.batches), (reference.means, alone.means)):
        np.testing.assert_equal(got, want)
    np.testing.assert_allclose(reference.outputs, alone.outputs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [MANY, MANY - 1])
def test_equalized_values_have_the_ranges_of_other_samples_where_there_are_enough(count):
    made, data, _, (_, reference) = observed(count)
    (twin,), (alone,) = reference.twins, equalize(made, data, CONFIG)
    assert twin.label == EQUALIZED
    np.testing.assert_equal(twin.scales, alone.scales)
    x = samples(count, 4, 6, 6)
    seen = x[SAMPLES : 2 * SAMPLES] if count == MANY else x[:SAMPLES]
    whole = collect(twin.model, ("r_equalized",), open_dataset({"x": seen}, made.inputs), OPTIONS).tensors[
        "r_equalized"
    ]
    got = twin.observed["r_equalized"]
    assert (got.count, got.lo) == (whole.count, 0.0)
    assert got.hi == pytest.approx(whole.hi, rel=1e-6)
    assert np.abs(got.counts - whole.counts).sum() < 0.001 * whole.count  # values beside an edge of a bin


def test_with_few_samples_nothing_is_equalized():
    assert observed(LEAST_SAMPLES - 1)[-1][1].twins == ()


def test_an_output_that_is_an_input_is_run_for():
    made = net(
        "net (float[N,4] x) => (float[N,4] x, float[N,3] y) { y = MatMul(x, w) }", weights({"w": (4, 3)})
    )
    data = open_dataset({"x": samples(8, 4)}, made.inputs)
    stats, reference = observe(made, observed_values(made, (ORT,), CONFIG), data, CONFIG, OPTIONS)
    assert reference.seen is None
    fitted = fit(made, stats, ORT, reference, config=CONFIG, calibration=OPTIONS)
    assert max(fitted.noise_ratios.values()) < 1e-3
