# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quantrt.calibrate.stats import Stats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.errors import DataError, ModelError
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values, quantize, with_integer_biases
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT
from quantrt.reference.metrics import sqnr_db
from tests.nets import CONV, constant, net, observe, quantized, resnet, run_ort, samples, weights

IMAGES = {"x": samples(4, 3, 16, 16)}


def test_calibration_taps_what_any_target_quantizes():
    model = resnet()
    alone = [set(observed_values(model, (target,), QuantizeConfig())) for target in TARGETS]
    together = observed_values(model, TARGETS, QuantizeConfig())
    assert set(together) == set().union(*alone)
    assert list(together) == sorted(together)


def test_grids_follow_the_target():
    model = resnet()
    stats = observe(model, TARGETS, IMAGES)
    made = {t: quantize(model, stats, t, QuantizeConfig(), CalibrationConfig()).activations for t in TARGETS}
    assert {grid.dtype.name for grid in made[ORT].values()} == {"uint8"}
    assert made[ORT]["r0"].zero_point == 0 and made[ORT]["x"].zero_point > 0
    assert {(g.dtype.name, int(g.zero_point)) for g in made[TENSORRT].values()} == {("int8", 0)}
    openvino = made[OPENVINO]
    assert openvino["c2"].dtype.name == "int8" and openvino["c2"].zero_point == 0
    assert openvino["r0"].dtype.name == "uint8" and openvino["r0"].zero_point == 0
    assert openvino["x"].dtype.name == "uint8" and openvino["x"].zero_point > 0


def test_members_of_a_group_get_the_grid_of_their_joint_range():
    text = """net (float[N,4,8,8] x) => (float[N,4,8,8] y) {
    a = Conv<pads=[1,1,1,1]>(x, w) b = Conv<pads=[1,1,1,1]>(x, v)
    c = Concat<axis=1>(a, b) y = Conv<pads=[1,1,1,1]>(c, u) }"""
    arrays = weights({"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "u": (4, 8, 3, 3)})
    arrays["v"] *= 10
    result = quantized(net(text, arrays), OPENVINO, {"x": samples(4, 4, 8, 8)}, method="minmax")
    grid_a, grid_b = result.activations["a"], result.activations["b"]
    assert grid_a == grid_b
    stats = observe(net(text, arrays), (OPENVINO,), {"x": samples(4, 4, 8, 8)})
    widest = max(stats.tensors["b"].hi, stats.tensors["a"].hi) - min(
        stats.tensors["b"].lo, stats.tensors["a"].lo
    )
    assert float(grid_a.scale) * 255 == pytest.approx(widest, rel=1e-5)


def test_a_weight_that_is_not_finite_is_named_with_where_it_is_not():
    text = "net (float[N,8] x) => (float[N,8] y) { [first] h = MatMul (x, w) [second] y = MatMul (h, v) }"
    arrays = weights({"w": (8, 8), "v": (8, 8)})
    stats = observe(net(text, arrays), (OPENVINO,), {"x": samples(4, 8)})
    arrays["v"][2, 5], arrays["v"][3, 0] = np.nan, np.inf
    with pytest.raises(ModelError, match="the weight of node 'second'") as caught:
        quantize(net(text, arrays), stats, OPENVINO, QuantizeConfig(), CalibrationConfig())
    assert caught.value.got == "2 of 64 values NaN or infinite, the first at [2, 5]"


def test_a_value_without_statistics_is_an_error_that_names_it():
    model = resnet()
    stats = observe(model, (OPENVINO,), IMAGES)
    fewer = {name: tensor for name, tensor in stats.tensors.items() if name != "r1"}
    with pytest.raises(DataError, match="'r1'"):
        quantize(
            model,
            Stats(fewer, stats.samples, stats.data_hash, stats.fingerprint),
            OPENVINO,
            QuantizeConfig(),
            CalibrationConfig(),
        )


def test_ranges_serve_fewer_layers_than_were_observed():
    model = resnet()
    stats = observe(model, (ORT,), IMAGES)
    result = quantize(model, stats, ORT, QuantizeConfig(exclude=("Gemm_12",)), CalibrationConfig())
    assert ("Gemm_12", 1) not in result.weights and result.has_int8


def test_an_activation_that_is_always_zero_is_noted():
    arrays = weights({"w": (8, 3, 3, 3), "b": (8,), "v": (8, 8, 3, 3)})
    arrays["b"] = np.full(8, -1e6, np.float32)
    text = """net (float[N,3,8,8] x) => (float[N,8,8,8] y) { h = Conv<pads=[1,1,1,1]>(x, w, b)
    r = Relu(h) y = Conv<pads=[1,1,1,1]>(r, v) }"""
    result = quantized(net(text, arrays), OPENVINO, {"x": samples(4, 3, 8, 8)})
    assert result.activations["r"].scale == 1.0
    assert any("'r' was all zero" in note for note in result.notes)


def test_seven_bit_targets_get_seven_bit_weights():
    from dataclasses import replace

    result = quantized(resnet(), replace(ORT, weight_qmax=63), IMAGES)
    assert {int(np.abs(t.codes.astype(int)).max()) for t in result.weights.values()} == {63}


def test_a_weight_with_nan_is_refused():
    arrays = weights({"w": (8, 3, 3, 3), "b": (8,)})
    model, inputs = net(CONV, arrays), {"x": samples(2, 3, 8, 8)}
    stats = observe(model, (OPENVINO,), inputs)
    arrays["w"][0, 0, 0, 0] = np.nan
    with pytest.raises(ModelError, match="NaN"):
        quantize(net(CONV, arrays), stats, OPENVINO, QuantizeConfig(), CalibrationConfig())


def test_a_bias_that_a_computed_value_provides_stays_float():
    text = """net (float[N,3,8,8] x, float[8] b) => (float[N,8,8,8] y) {
    y = Conv<pads=[1,1,1,1]>(x, w, b) }"""
    model = net(text, weights({"w": (8, 3, 3, 3)}))
    from quantrt.calibrate.collect import collect
    from quantrt.calibrate.dataset import open_dataset

    inputs = {"x": samples(1, 3, 8, 8), "b": samples(8)}
    names = observed_values(model, (ORT,), QuantizeConfig())
    stats = collect(model, names, open_dataset([inputs], model.inputs), CalibrationConfig())
    result = quantize(model, stats, ORT, QuantizeConfig(), CalibrationConfig())
    assert not result.biases and ("Conv_0", 1) in result.weights


def test_a_double_model_is_quantized():
    text = "net (double[N,8] x) => (double[N,8] y) { m = MatMul(x, w) y = Relu(m) }"
    model = net(text, {"w": np.eye(8)})
    inputs = {"x": samples(8, 8)}
    made = quantized(model, ORT, inputs)
    assert ("MatMul_0", 1) in made.weights
    (got,) = run_ort(write(made), inputs)
    assert sqnr_db(np.maximum(inputs["x"], 0), got) > 30


def test_a_float16_model_is_quantized():
    text = "net (float16[N,8] x) => (float16[N,8] y) { m = MatMul(x, w) y = Relu(m) }"
    model = net(text, {"w": np.eye(8, dtype=np.float16)})
    inputs = {"x": samples(8, 8).astype(np.float16)}
    made = quantized(model, ORT, inputs)
    assert ("MatMul_0", 1) in made.weights
    (got,) = run_ort(write(made), inputs)
    assert got.dtype == np.float16
    assert sqnr_db(np.maximum(inputs["x"], 0).astype(np.float32), got.astype(np.float32)) > 30


def test_every_bias_gets_codes_on_the_unit_of_its_sums():
    made = quantized(resnet(), OPENVINO, IMAGES)
    changed = with_integer_biases(made)
    layers = [node for node in changed.graph.graph if (node.name, 2) in changed.biases]
    assert not made.biases and len(layers) == 3
    for node in layers:
        grid = made.activations[made.placement.uses[node.name, 0]]
        unit = float(made.weights[node.name, 1].qparams.scale.max() * grid.scale)
        found = changed.biases[node.name, 2].dequantize()
        np.testing.assert_allclose(found, constant(node.inputs[2]), atol=0.5001 * unit)
    want, got = (run_ort(write(model), IMAGES)[0] for model in (made, changed))
    assert np.square(got - want).sum() < 1e-3 * np.square(want).sum()
