# SPDX-License-Identifier: Apache-2.0
"""Biases after which no layer has a mean error, and when they are taken."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.ir.session import float_session
from quantrt.quantize.algorithms import measured_biases
from quantrt.quantize.algorithms.measured_biases import measure_biases
from quantrt.quantize.fit.fit import MEASURED, fit
from quantrt.quantize.fit.reference import FIT_SAMPLES, LEAST_MORE, sample_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import OPENVINO, ORT
from quantrt.quantize.targets.cuda import CUDA
from tests.nets import constant, net, nodes, observe, quantized, resnet, samples, weights

TARGETS = pytest.mark.parametrize("target", [ORT, OPENVINO, CUDA], ids=lambda target: target.name)
OPTIONS = CalibrationConfig(method="minmax")
COUNT = FIT_SAMPLES + 2 * LEAST_MORE

PRODUCTS = """net (float[N,7,16] x) => (float[N,7,8] y) {
  m = MatMul(x, w) h = Add(m, b) r = Relu(h) n = MatMul(r, v) t = Tanh(n) y = MatMul(t, u) }"""
SHAPES = {"w": (16, 12), "b": (12,), "v": (12, 10), "u": (10, 8)}


def layer_means(graph: ir.Model, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Mean of each channel of what every convolution and product makes, by its name."""
    layers = [node for kind in ("Conv", "Gemm", "MatMul") for node in nodes(graph, kind)]
    names = [node.outputs[0].name for node in layers]
    session = float_session(graph, extra_outputs=names)
    runs = [session.run(names, dict(batch)) for batch in batches]
    found = {}
    for node, parts in zip(layers, zip(*runs, strict=True), strict=True):
        x = np.moveaxis(np.concatenate(parts), 1 if node.op_type == "Conv" else -1, 0)
        found[node.name or ""] = x.reshape(len(x), -1).mean(axis=1, dtype=np.float64)
    return found


def floats_of(made):
    """With biases in floats, and activations that clip in front of the rounding."""
    return replace(made, biases={}, target=replace(made.target, quantizes_outputs=False))


@TARGETS
def test_no_layer_has_a_mean_error(target):
    model, x = resnet(), samples(8, 3, 16, 16)
    batches = [{"x": part} for part in np.split(x, 4)]
    made = floats_of(quantized(model, target, {"x": x}))
    found = replace(made, graph=measure_biases(made, model.graph, batches))
    want, before, after = (layer_means(g, batches) for g in (model.graph, write(made), write(found)))
    assert sum(np.abs(before[name] - want[name]).max() > 1e-3 for name in want) > 2
    for name, mean in want.items():
        np.testing.assert_allclose(after[name], mean, atol=2e-5, err_msg=name)


@TARGETS
def test_of_products_those_with_a_bias_are_corrected(target):
    model, x = net(PRODUCTS, weights(SHAPES)), samples(64, 7, 16)
    made = floats_of(quantized(model, target, {"x": x}))
    found = replace(made, graph=measure_biases(made, model.graph, [{"x": x}]))
    (add,), (was,) = nodes(found.graph, "Add"), nodes(made.graph, "Add")
    shift = constant(was.inputs[1]) - constant(add.inputs[1])
    means = [layer_means(graph, [{"x": x}]) for graph in (write(made), model.graph)]
    first = nodes(model.graph, "MatMul")[0].name
    np.testing.assert_allclose(shift, means[0][first] - means[1][first], atol=1e-6)
    assert len(nodes(found.graph, "Add")) == 1


def test_behind_what_passes_a_cut_fewer_samples_are_taken_where_it_is_large(monkeypatch):
    monkeypatch.setattr(measured_biases, "HELD_BYTES", 1)
    model, batches = resnet(), [{"x": samples(1, 3, 16, 16, seed=seed)} for seed in (1, 2)]
    made = floats_of(quantized(model, OPENVINO, batches[0]))
    found = replace(made, graph=measure_biases(made, model.graph, batches))
    want, after = (layer_means(graph, batches[:1]) for graph in (model.graph, write(found)))
    exact = [np.allclose(after[name], want[name], atol=2e-5) for name in want]
    assert not exact[0] and all(exact[1:])


def flat_rows(*, later: float) -> np.ndarray:
    """Each channel the same everywhere, narrow ones of another value behind the first samples."""
    x = np.tile(np.array([100, 0.31, 0.30, 0.32], np.float32).reshape(4, 1, 1), (COUNT, 1, 6, 6))
    x[FIT_SAMPLES:, 1:] = later
    return x


def fitted(x: np.ndarray, config: QuantizeConfig):
    arrays = weights({"w": (4, 4, 1, 1), "b": (4,)})
    arrays["w"][:, 0] = 0
    model = net("net (float[N,4,6,6] x) => (float[N,4,6,6] y) { y = Conv(x, w, b) }", arrays)
    reference = sample_reference(model, open_dataset({"x": x}, model.inputs), config, OPTIONS, batch_size=8)
    stats = observe(model, (OPENVINO,), {"x": x})
    return fit(model, stats, OPENVINO, reference, config=config, calibration=OPTIONS)


def test_they_are_taken_where_other_samples_gain_too():
    config = QuantizeConfig(measured_biases=True, equalization=False)
    made = fitted(flat_rows(later=0.31), config)
    assert made.method == "minmax" + MEASURED
    assert made.noise_ratios[made.method] < made.noise_ratios["minmax"] / 100
    assert fitted(flat_rows(later=0.31), replace(config, measured_biases=False)).method == "minmax"


def test_they_are_not_taken_where_other_samples_lose():
    """What is 0.3 becomes 0.39, and so does 0.48."""
    made = fitted(flat_rows(later=0.48), QuantizeConfig(measured_biases=True, equalization=False))
    assert made.noise_ratios["minmax" + MEASURED] < made.noise_ratios["minmax"] / 100
    assert made.method == "minmax"
