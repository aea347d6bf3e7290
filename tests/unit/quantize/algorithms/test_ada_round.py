# SPDX-License-Identifier: Apache-2.0
"""Codes by what layers make: never worse than the nearest ones, next to them, and kept where outputs gain."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.algorithms.ada_round import DAMPING, round_adaptively, round_codes, round_groups
from quantrt.quantize.algorithms.group_rounding import QMAX, QMIN, round_nearest
from quantrt.quantize.fit.fit import ROUNDED, fit, observe_reference, sample_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import with_weights
from quantrt.quantize.targets import OPENVINO, ORT
from quantrt.quantize.targets.cuda import CUDA
from tests.nets import net, observe, quantized, resnet, run_ort, samples, weights

TARGETS = pytest.mark.parametrize("target", [ORT, OPENVINO, CUDA], ids=lambda target: target.name)


def correlated(rows: int, inputs: int, seed: int = 0) -> np.ndarray:
    """Activations of a few directions and a little of everything, as in trained networks."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(rows, 4)) @ np.random.default_rng(7).normal(size=(4, inputs))
    return (mixed + 0.1 * rng.normal(size=(rows, inputs))).astype(np.float32)


def error(x: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Of each column: f64 [groups, N]."""
    return np.square(x.astype(np.float64) @ difference).sum(axis=1)


@pytest.mark.parametrize("qmax", [7, 127])
@pytest.mark.parametrize(("groups", "inputs"), [(1, 200), (6, 9)])
def test_no_column_is_worse_than_of_nearest_codes(groups: int, inputs: int, qmax: int, rng):
    scale = rng.uniform(0.5, 2, size=(groups, inputs, 16))
    weight = np.clip(rng.normal(size=scale.shape) * qmax / 3, -qmax, qmax) * scale
    nearest = np.rint(weight / scale)
    x = np.stack([correlated(600, inputs, seed) for seed in range(groups)])
    gram = (x.transpose(0, 2, 1) @ x).astype(np.float64) / 600
    codes = round_codes(weight, scale, nearest, gram, bounds=(-qmax, qmax))
    assert np.abs(codes - nearest).max() == 1
    assert np.abs(codes).max() <= qmax
    differences = [made * scale - weight for made in (nearest, codes)]
    before, after = (error(x, difference) for difference in differences)
    ridge = DAMPING * np.trace(gram, axis1=1, axis2=2)[:, None] / inputs * 600  # is part of what gets less
    damped = [e + ridge * np.square(d).sum(axis=1) for e, d in zip((before, after), differences, strict=True)]
    assert np.all(damped[1] <= damped[0] * (1 + 1e-9))
    assert after.sum() < before.sum() / 3
    unseen = np.stack([correlated(600, inputs, seed + 50) for seed in range(groups)])
    assert error(unseen, differences[1]).sum() < error(unseen, differences[0]).sum() / 3


def test_independent_inputs_keep_the_nearest_codes(rng):
    weight, ones = rng.normal(size=(1, 32, 8)) * 40, np.ones((1, 32, 8))
    nearest = np.rint(weight)
    for gram in (np.eye(32)[None], np.zeros((1, 32, 32))):
        np.testing.assert_array_equal(round_codes(weight, ones, nearest, gram, bounds=(-127, 127)), nearest)


def test_shapes_that_do_not_fit_are_refused(rng):
    weight, ones = rng.normal(size=(1, 8, 3)), np.ones((1, 8, 3))
    with pytest.raises(ValueError, match="do not fit"):
        round_codes(weight, ones, np.rint(weight), np.eye(9)[None], bounds=(-127, 127))
    with pytest.raises(ValueError, match="do not fit"):
        round_codes(weight, ones[:, :1], np.rint(weight), np.eye(8)[None], bounds=(-127, 127))


@pytest.mark.parametrize("group_size", [32, 128])
def test_groups_of_4_bits(group_size: int, rng):
    x, weight = correlated(500, 200), rng.normal(size=(200, 24)).astype(np.float32)
    gram = (x.T @ x / 500).astype(np.float64)
    nearest = round_nearest(weight, group_size=group_size)
    made = round_groups(weight, gram, group_size=group_size)
    assert made.codes.min() >= QMIN and made.codes.max() <= QMAX
    np.testing.assert_array_equal(made.scales, nearest.scales)
    assert np.abs(made.codes.astype(int) - nearest.codes).max() == 1
    errors = [error(x[None], (g.dequantize() - weight)[None]).sum() for g in (made, nearest)]
    assert errors[0] < errors[1] / 3


def wide_net():
    """A product of 64 correlated inputs."""
    return net("net (float[N,64] x) => (float[N,8] y) { y = MatMul(x, w) }", weights({"w": (64, 8)}))


@TARGETS
def test_codes_of_a_model(target):
    model, x = resnet(), {"x": samples(8, 3, 16, 16)}
    made = quantized(model, target, x)
    found = round_adaptively(model.graph, made.weights, [x])
    again = round_adaptively(model.graph, made.weights, [x])
    assert found.keys() == made.weights.keys()
    changed = 0
    for use, tensor in made.weights.items():
        assert found[use].qparams is tensor.qparams
        assert found[use].codes.dtype == tensor.codes.dtype
        assert found[use].codes.flags.c_contiguous  # ONNX Runtime takes no others
        np.testing.assert_array_equal(found[use].codes, again[use].codes)
        difference = found[use].codes.astype(int) - tensor.codes.astype(int)
        assert np.abs(difference).max() <= 1
        changed += np.count_nonzero(difference)
    assert changed > 0
    rounded = with_weights(made, found, model.graph, None)
    assert all(np.isfinite(y).all() for y in run_ort(write(rounded), x))


def test_biases_follow_the_codes():
    model, x = resnet(), {"x": samples(8, 3, 16, 16)}
    config = QuantizeConfig()
    means = observe_reference(model, [x], config).means
    made = quantized(model, ORT, x)
    same = with_weights(made, made.weights, model.graph, means)
    for use, bias in made.biases.items():
        np.testing.assert_array_equal(same.biases[use].codes, bias.codes)
    moved = with_weights(made, round_adaptively(model.graph, made.weights, [x]), model.graph, means)
    assert any(np.any(moved.biases[use].codes != bias.codes) for use, bias in made.biases.items())


def test_what_a_bias_takes_back_does_not_count():
    """Of inputs far from zero the mean is most of their power, and the bias corrects what it makes."""
    text = "net (float[N,6] x) => (float[N,32] y) { y = Gemm(x, w, b) }"
    model, x = net(text, weights({"w": (6, 32), "b": (32,)})), {"x": correlated(400, 6) + 5}
    made = quantized(model, OPENVINO, x)
    means = observe_reference(model, [x], QuantizeConfig()).means
    (want,) = run_ort(model.graph, x)

    def noise(*, corrects_biases: bool) -> float:
        codes = round_adaptively(model.graph, made.weights, [x], corrects_biases=corrects_biases)
        found = with_weights(made, codes, model.graph, means)
        (got,) = run_ort(write(replace(found, activations={}, placement=without_activations(found))), x)
        return float(np.square(got - want).sum())

    assert noise(corrects_biases=True) < 0.95 * noise(corrects_biases=False)


def without_activations(made):
    return replace(made.placement, uses={}, outputs=frozenset())


def test_weights_that_two_nodes_read_stay():
    model = net(
        "net (float[N,8] x) => (float[N,8] y) { h = MatMul(x, w) y = MatMul(h, w) }", weights({"w": (8, 8)})
    )
    x = {"x": correlated(64, 8)}
    made = quantized(model, ORT, x)
    assert round_adaptively(model.graph, made.weights, [x]) == made.weights
    assert round_adaptively(model.graph, made.weights, []) == made.weights


def test_it_is_kept_where_the_outputs_gain_by_it():
    model, x = wide_net(), {"x": correlated(128, 64)}
    config = QuantizeConfig(adaptive_rounding=True, equalization=False)
    reference = observe_reference(model, [x], config)
    stats, options = observe(model, (ORT,), x), CalibrationConfig(method="minmax")
    made = fit(model, stats, ORT, reference, config=config, calibration=options)
    assert made.method == f"minmax{ROUNDED}"
    assert made.noise_ratios[made.method] < made.noise_ratios["minmax"]
    plain = replace(config, adaptive_rounding=False)
    assert fit(model, stats, ORT, reference, config=plain, calibration=options).method == "minmax"


@pytest.mark.parametrize("is_correlated", [True, False])
def test_it_is_judged_on_samples_that_it_did_not_see(is_correlated: bool, rng):
    """64 rows of 64 inputs that have nothing in common tell nothing of 64 others."""
    rows = correlated(128, 64) if is_correlated else rng.normal(size=(128, 64)).astype(np.float32)
    model, batches = wide_net(), [{"x": rows[at : at + 16]} for at in range(0, 128, 16)]
    config = QuantizeConfig(adaptive_rounding=True, equalization=False)
    stats, options = observe(model, (ORT,), {"x": rows}), CalibrationConfig(method="minmax")
    made = fit(
        model, stats, ORT, observe_reference(model, batches, config), config=config, calibration=options
    )
    assert made.method == ("minmax" + ROUNDED if is_correlated else "minmax")


@pytest.mark.parametrize("is_correlated", [True, False])
def test_where_neighbours_are_alike_further_samples_tell(is_correlated: bool, rng):
    """Sentences come in pairs that say the same: half of them is right of the other half, of no others."""
    rows = correlated(192, 64) if is_correlated else rng.normal(size=(192, 64)).astype(np.float32)
    model, inputs = wide_net(), {"x": np.concatenate([np.repeat(rows[:64:2], 2, axis=0), rows[64:]])}
    config = QuantizeConfig(adaptive_rounding=True, equalization=False)
    stats, options = observe(model, (ORT,), inputs), CalibrationConfig(method="minmax")
    reference = sample_reference(model, open_dataset(inputs, model.inputs), config, options)
    made = fit(model, stats, ORT, reference, config=config, calibration=options)
    assert made.method == ("minmax" + ROUNDED if is_correlated else "minmax")
    assert made.noise_ratios["minmax" + ROUNDED] < 0.95 * made.noise_ratios["minmax"], "of the first samples"


def test_without_samples_it_is_told_that_codes_are_the_nearest():
    model, x = wide_net(), {"x": correlated(128, 64)}
    config = QuantizeConfig(adaptive_rounding=True)
    stats, options = observe(model, (ORT,), x), CalibrationConfig(method="minmax")
    reference = observe_reference(model, [], config)
    made = fit(model, stats, ORT, reference, config=config, calibration=options)
    assert made.method == "minmax"
    assert any("rounded to the nearest codes" in note for note in made.model.notes)
