# SPDX-License-Identifier: Apache-2.0
"""Ranges that the outputs gain by: outliers that nothing reads are clipped, and every grid stays shared."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.algorithms.range_search import search_ranges
from quantrt.quantize.fit.fit import SEARCHED, fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import with_activations
from quantrt.quantize.targets import OPENVINO, ORT
from quantrt.quantize.targets.cuda import CUDA
from tests.nets import net, observe, quantized, resnet, run_ort, samples, weights

TARGETS = pytest.mark.parametrize("target", [ORT, OPENVINO, CUDA], ids=lambda target: target.name)


def unread_net():
    """Channel 0, a hundred times as large as the others, is read with a weight of zero."""
    arrays = weights({"w": (16, 8)})
    arrays["w"][0] = 0
    arrays["large"] = np.where(np.arange(16) == 0, 100, 1).astype(np.float32)
    return net(
        "net (float[N,16] x) => (float[N,8] y) "
        "{ h = Mul(x, large) t = Tanh(x) g = Mul(h, t) y = MatMul(g, w) }",
        arrays,
    )


def noise_of(model, made, inputs) -> float:
    (want,), (got,) = run_ort(model.graph, inputs), run_ort(write(made), inputs)
    return float(np.square(want - got).sum() / np.square(want).sum())


@TARGETS
def test_what_nothing_reads_does_not_set_a_range(target):
    model, x = unread_net(), {"x": samples(64, 16)}
    made = quantized(model, target, x, method="minmax")
    found = made
    for _ in range(3):  # each pass may shrink a range once
        wanted = [run_ort(model.graph, x)]
        found = with_activations(found, search_ranges(found, [x], wanted))
    assert found.activations["g"].scale < 0.3 * made.activations["g"].scale
    unseen = {"x": samples(64, 16, seed=9)}
    assert noise_of(model, found, unseen) < noise_of(model, made, unseen) / 4


@TARGETS
def test_grids_stay_shared_and_biases_follow(target):
    model, x = resnet(), {"x": samples(8, 3, 16, 16)}
    made = quantized(model, target, x, method="minmax")
    found = with_activations(made, search_ranges(made, [x], [run_ort(model.graph, x)]))
    for group in made.placement.groups:
        assert len({float(found.activations[name].scale) for name in group & set(found.activations)}) <= 1
    assert noise_of(model, found, x) <= noise_of(model, made, x)
    for use, (activation, weight) in made.placement.biases.items():
        if use in found.biases:
            scale = (
                found.activations[made.placement.uses[activation]].scale * made.weights[weight].qparams.scale
            )
            np.testing.assert_allclose(found.biases[use].qparams.scale, scale, rtol=1e-6)


def test_it_is_kept_where_the_outputs_gain_by_it():
    model, x = unread_net(), {"x": samples(128, 16)}
    config = QuantizeConfig(range_search=True, equalization=False)
    reference = observe_reference(
        model, [b.inputs for b in open_dataset(x, model.inputs).batches(32)], config
    )
    stats, options = observe(model, (ORT,), x), CalibrationConfig(method="minmax")
    made = fit(model, stats, ORT, reference, config=config, calibration=options)
    assert made.method == f"minmax{SEARCHED}"
    assert made.noise_ratios[made.method] < made.noise_ratios["minmax"] / 2
    plain = fit(model, stats, ORT, reference, config=replace(config, range_search=False), calibration=options)
    assert plain.method == "minmax"


def test_floats_and_models_without_data_keep_their_ranges():
    model, x = unread_net(), {"x": samples(8, 16)}
    made = quantized(model, ORT, x)
    assert search_ranges(made, [], []) == made.activations
