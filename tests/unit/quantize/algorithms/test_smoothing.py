# SPDX-License-Identifier: Apache-2.0
"""Outlier channels move into the weights that read them; outputs stay, and quantized ones are far nearer."""

from dataclasses import replace

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.edit import is_operator
from quantrt.quantize.algorithms.smoothing import MULTIPLIED, Smoothing, choose_smoothing, smooth
from quantrt.quantize.fit.equalized import LEAST_SAMPLES, make_twins
from quantrt.quantize.fit.fit import fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import OPENVINO, ORT
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.metrics import sqnr_db
from tests.nets import net, observe, run_ort, samples, weights

OUTLIERS = np.ones(16, np.float32)
OUTLIERS[[3, 11]] = 100.0

NETS = {
    "folded": "n = LayerNormalization<axis=-1>(x, gamma, beta) y = MatMul(n, w)",
    "multiplied": "n = LayerNormalization<axis=-1>(x, gamma, beta) m = MatMul(n, square) y = Add(m, n)",
    "two products": "n = LayerNormalization<axis=-1>(x, gamma, beta) a = MatMul(n, w) b = MatMul(n, v) "
    "y = Add(a, b)",
    "behind an activation": "h = Mul(x, gamma) t = Tanh(h) g = Mul(h, t) m = MatMul(g, w) y = Add(m, beta2)",
}
SHAPES = {"w": (16, 12), "v": (16, 12), "square": (16, 16), "gamma": (16,), "beta": (16,), "beta2": (12,)}


def outlier_net(body: str):
    """The largest channels are read with small weights, as in trained transformers."""
    arrays = weights(SHAPES)
    arrays["gamma"] = OUTLIERS.copy()
    arrays["beta"] *= OUTLIERS
    for name in ("w", "v", "square"):
        arrays[name] = arrays[name] / OUTLIERS[:, None]
    used = {name: array for name, array in arrays.items() if f" {name}," in body or f" {name})" in body}
    return net(f"net (float[N,4,16] x) => (float[N,4,k] y) {{ {body} }}", used)


X = {"x": samples(LEAST_SAMPLES, 4, 16)}
UNSEEN = {"x": samples(32, 4, 16, seed=5)}


@pytest.mark.parametrize("name", NETS)
def test_outputs_are_the_same_and_channels_alike(name: str):
    model = outlier_net(NETS[name])
    found = choose_smoothing(model.graph, [X], qmax=127)
    assert bool(found.folded) == (name in ("folded", "two products"))
    assert bool(found.multiplied) == (name in ("multiplied", "behind an activation"))
    smoothed = smooth(model.graph, found)
    (want,), (got,) = run_ort(model.graph, UNSEEN), run_ort(smoothed, UNSEEN)
    assert sqnr_db(want, got) > 100
    (scale,) = [*found.folded.values(), *found.multiplied.values()]
    assert scale[[3, 11]].min() > 5 * np.delete(scale, [3, 11]).max()
    muls = [node.name for node in smoothed.graph if (node.name or "").endswith(MULTIPLIED)]
    assert len(muls) == len(found.multiplied)


@pytest.mark.parametrize("target", [ORT, OPENVINO, CUDA], ids=lambda target: target.name)
@pytest.mark.parametrize("name", NETS)
def test_a_quantized_model_gains_by_it(name: str, target):
    model = outlier_net(NETS[name])
    config = QuantizeConfig(smoothing="multiplied", equalization=False)
    data = open_dataset(X, model.inputs)
    reference = observe_reference(model, [X], config, make_twins(model, data, config))
    stats = observe(model, (target,), X)
    made = fit(model, stats, target, reference, config=config, calibration=CalibrationConfig())
    assert "smoothed" in made.method and made.model.model is model
    noise = made.noise_ratios
    assert noise[made.method] < noise[made.method.partition(",")[0]] / 4
    plain = fit(
        model, stats, target, replace(reference, twins=()), config=config, calibration=CalibrationConfig()
    )
    (want,) = run_ort(model.graph, UNSEEN)
    errors = [np.square(run_ort(write(q.model), UNSEEN)[0] - want).sum() for q in (made, plain)]
    assert errors[0] < errors[1] / 4, "on other samples too"


def test_what_a_mul_would_gain_is_left_alone_where_only_folding_is_wanted():
    model = outlier_net(NETS["multiplied"])
    assert choose_smoothing(model.graph, [X], qmax=127, only_folded=True) == Smoothing()


def test_even_channels_are_left_alone():
    arrays = weights(SHAPES)
    model = net(
        "net (float[N,4,16] x) => (float[N,4,12] y) { t = Tanh(x) y = MatMul(t, w) }", {"w": arrays["w"]}
    )
    assert choose_smoothing(model.graph, [X], qmax=127) == Smoothing()


def test_channels_that_are_never_anything_keep_finite_factors():
    model = outlier_net(NETS["behind an activation"])
    dead = {"x": X["x"] * (np.arange(16) != 5)}
    found = choose_smoothing(model.graph, [dead], qmax=127)
    assert all(np.isfinite(scale).all() and (scale > 0).all() for scale in found.multiplied.values())
    changed = smooth(model.graph, found)
    assert any(is_operator(node, "Mul") and node.name.endswith(MULTIPLIED) for node in changed.graph)
