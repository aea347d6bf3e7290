# SPDX-License-Identifier: Apache-2.0
"""Further calibration samples, and the noise of models on them."""

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.fit.observe import observe
from quantrt.quantize.fit.reference import (
    FIT_SAMPLES,
    LEAST_MORE,
    MORE_SAMPLES,
    Reference,
    sample_reference,
    unseen_noises,
)
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets import ORT
from tests.nets import net, quantized, run_ort, samples, weights

CONFIG = QuantizeConfig(equalization=False)


def model():
    return net("net (float[N,16] x) => (float[N,8] y) { y = MatMul(x, w) }", weights({"w": (16, 8)}))


def reference(count: int, *, batch_size: int = 8, limit: int | None = None) -> tuple[Reference, np.ndarray]:
    made, x = model(), samples(count, 16)
    options = CalibrationConfig(max_samples=limit)
    data = open_dataset({"x": x}, made.inputs)
    return sample_reference(made, data, CONFIG, options, batch_size=batch_size), x


def read(made: Reference) -> np.ndarray:
    assert made.more is not None
    return np.concatenate([batch.inputs["x"] for batch in made.more()] or [np.empty((0, 16), np.float32)])


@pytest.mark.parametrize(
    ("count", "limit", "end"),
    [
        (200, None, 200),
        (FIT_SAMPLES + MORE_SAMPLES + 9, None, FIT_SAMPLES + MORE_SAMPLES),
        (200, 100, 100),
        (200, FIT_SAMPLES, FIT_SAMPLES),
        (10, None, FIT_SAMPLES),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 8])
def test_further_samples_are_those_behind_the_first(count: int, limit: int | None, end: int, batch_size: int):
    made, x = reference(count, batch_size=batch_size, limit=limit)
    np.testing.assert_array_equal(read(made), x[FIT_SAMPLES:end])
    np.testing.assert_array_equal(read(made), x[FIT_SAMPLES:end])  # read as often as wanted


def test_one_pass_over_the_data_gives_the_same():
    made, x = model(), samples(200, 16)
    data, names = open_dataset({"x": x}, made.inputs), observed_values(made, (ORT,), CONFIG)
    _, found = observe(made, names, data, CONFIG, CalibrationConfig())
    np.testing.assert_array_equal(read(found), x[FIT_SAMPLES:])


def test_noise_is_that_of_the_further_samples():
    made, x = reference(FIT_SAMPLES + LEAST_MORE)
    unseen = {"x": x[FIT_SAMPLES:]}
    models = [quantized(model(), ORT, {"x": x}, method=method) for method in ("minmax", "entropy")]
    (want,) = run_ort(made.graph, unseen)
    noises = unseen_noises(models, made)
    assert noises is not None
    for one, noise in zip(models, noises, strict=True):
        (got,) = run_ort(write(one), unseen)
        ratio = np.square(got - want).sum() / np.square(want).sum()
        assert noise == pytest.approx(ratio, rel=1e-3)  # batches of 8 and of all: sums in other orders


def test_too_few_tell_nothing():
    made, x = reference(FIT_SAMPLES + LEAST_MORE - 1)
    assert unseen_noises([quantized(model(), ORT, {"x": x})], made) is None


def test_halves_are_every_other_batch():
    made, x = reference(32)
    for first in (0, 1):
        half = made.half(first)
        assert half is not None
        got = np.concatenate([batch["x"] for batch in half.batches])
        np.testing.assert_array_equal(got, np.concatenate([x[8 * first :][:8], x[16 + 8 * first :][:8]]))
        np.testing.assert_array_equal(half.outputs, made.outputs[first::2])
    alone, _ = reference(8)
    assert alone.half(1) is None
