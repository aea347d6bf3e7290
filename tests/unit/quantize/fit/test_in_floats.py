# SPDX-License-Identifier: Apache-2.0
"""Layers that read the model's inputs are in floats where the rounding of these is most of the noise."""

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.fit.fit import FLOAT_INPUTS, fit
from quantrt.quantize.fit.in_floats import INPUTS_GAIN
from quantrt.quantize.fit.reference import FIT_SAMPLES, LEAST_MORE, sample_reference
from quantrt.quantize.targets import OPENVINO, ORT
from quantrt.quantize.targets.cuda import CUDA
from tests.nets import net, observe, samples, weights

COUNT = FIT_SAMPLES + LEAST_MORE
CONFIG = QuantizeConfig(float_inputs=True, equalization=False)


def wide(x: np.ndarray, times: float) -> np.ndarray:
    """Channel 0, which nothing reads, as wide as `times` all others."""
    x[:, 0] *= times
    return x


def fitted(x: np.ndarray, target, config: QuantizeConfig = CONFIG):
    text = """net (float[N,4,6,6] x) => (float[N,4,6,6] y) {
      a = Conv(x, wa) r = Relu(a) b = Conv(r, wb) s = Relu(b) c = Conv(s, wc) t = Relu(c)
      y = Conv(t, wd) }"""
    arrays = weights(dict.fromkeys(("wa", "wb", "wc", "wd"), (4, 4, 1, 1)))
    arrays["wa"][:, 0] = 0
    model, options = net(text, arrays), CalibrationConfig(method="minmax")
    reference = sample_reference(model, open_dataset({"x": x}, model.inputs), config, options, batch_size=8)
    stats = observe(model, (target,), {"x": x})
    return fit(model, stats, target, reference, config=config, calibration=options)


@pytest.mark.parametrize("target", [ORT, OPENVINO, CUDA], ids=lambda target: target.name)
def test_they_are_where_the_outputs_gain_half(target):
    made = fitted(wide(samples(COUNT, 4, 6, 6), 50), target)
    assert made.method == "minmax" + FLOAT_INPUTS
    assert made.noise_ratios[made.method] < INPUTS_GAIN * made.noise_ratios["minmax"]
    first, *others = (row for row in made.model.placement.decisions if row.op_type == "Conv")
    assert not first.is_int8 and "reads an input" in first.reason
    assert all(row.is_int8 for row in others)
    assert made.kept_float == {first.node: first.reason}
    assert "x" not in made.model.activations


def test_they_are_not_where_little_is_gained():
    made = fitted(samples(COUNT, 4, 6, 6), OPENVINO)
    assert made.method == "minmax"
    assert INPUTS_GAIN < made.noise_ratios["minmax" + FLOAT_INPUTS] / made.noise_ratios["minmax"]


def test_they_are_not_where_further_samples_gain_little():
    x = samples(COUNT, 4, 6, 6)
    x[:FIT_SAMPLES] /= 50
    made = fitted(x, OPENVINO)
    assert made.noise_ratios["minmax" + FLOAT_INPUTS] < INPUTS_GAIN * made.noise_ratios["minmax"]
    assert made.method == "minmax"
