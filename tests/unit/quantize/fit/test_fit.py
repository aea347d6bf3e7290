# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.fit.equalized import EQUALIZED, LEAST_SAMPLES, STREAMS, equalize
from quantrt.quantize.fit.fit import FLOAT_SUMS, NOT_CORRECTED, TRIED, UNFITTED, fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import constant, dataset, net, nodes, observe, resnet, run_ort, samples, weights

IMAGES = {"x": samples(8, 3, 16, 16)}


def fitted(model, inputs, *, target=OPENVINO, method="auto", with_data=True, **options):
    config = QuantizeConfig(**options)
    reference = observe_reference(model, [inputs] if with_data else [], config)
    stats = observe(model, (target,), inputs)
    return fit(model, stats, target, reference, config=config, calibration=CalibrationConfig(method=method))


def test_the_methods_are_measured_and_the_one_with_the_least_noise_is_kept():
    result = fitted(resnet(), IMAGES)
    assert set(result.noise_ratios) == {*TRIED, result.method + NOT_CORRECTED}
    assert result.noise_ratios[result.method] == min(result.noise_ratios.values())
    assert all(0 < ratio < 0.1 for ratio in result.noise_ratios.values())


def outlier_net(*, outliers_count: bool):
    """h has rare values of 1000 in channel 0; a second layer reads them, or has zero weights there."""
    text = "net (float[N,16] x) => (float[N,16] y) { h = MatMul(x, first) y = MatMul(h, second) }"
    first = np.eye(16, dtype=np.float32)
    second = weights({"second": (16, 16)})["second"]
    second[0] = 1.0 if outliers_count else 0.0
    return net(text, {"first": first, "second": second})


def outlier_inputs() -> dict[str, np.ndarray]:
    x = samples(512, 16)
    x[:, 0] = 0
    x[:4, 0] = 300.0
    return {"x": x}


def uneven_net():
    """A depthwise convolution reads channels of ranges from 1 to 1/1000; the last layer weighs them alike."""
    text = """net (float[N,8,8,8] x) => (float[N,4,i,j] y) {
      h = Conv(x, first) r = Relu(h) d = Conv<group=8>(r, deep) y = Conv(d, last) }"""
    ranges = np.logspace(0, -3, 8, dtype=np.float32).reshape(-1, 1, 1, 1)
    arrays = weights({"first": (8, 8, 1, 1), "deep": (8, 1, 3, 3), "last": (4, 8, 1, 1)})
    return net(text, arrays | {"first": arrays["first"] * ranges, "deep": arrays["deep"] / ranges})


def with_equalization(model, inputs, **options):
    config = QuantizeConfig(**options)
    twins = equalize(model, dataset(model, inputs), config)
    reference = observe_reference(model, [inputs], config, twins)
    stats = observe(model, (OPENVINO,), inputs)
    return twins, fit(model, stats, OPENVINO, reference, config=config, calibration=CalibrationConfig())


def test_channels_are_equalized_where_the_outputs_gain_by_it():
    model, inputs = uneven_net(), {"x": samples(LEAST_SAMPLES, 8, 8, 8)}
    _, result = with_equalization(model, inputs)
    assert result.method.endswith(EQUALIZED) and result.model.model is model
    plain = result.noise_ratios[result.method.removesuffix(EQUALIZED)]
    assert result.noise_ratios[result.method] < plain / 10
    unseen = {"x": samples(16, 8, 8, 8, seed=9)}
    want = run_ort(model.graph, unseen)[0]
    noise = [
        np.square(run_ort(write(quantized), unseen)[0] - want).sum()
        for quantized in (result.model, fitted(model, inputs).model)
    ]
    assert noise[0] < noise[1] / 10


def test_residual_streams_are_equalized_too_where_the_outputs_gain_by_it():
    text = """net (float[N,8,8,8] x) => (float[N,4,8,8] y) {
      a = Conv(x, w0) b = Conv(a, w1) r = Relu(b) c = Conv(r, w2) s = Add(a, c) y = Conv(s, w3) }"""
    arrays = weights(dict.fromkeys(("w0", "w1", "w2"), (8, 8, 1, 1)) | {"w3": (4, 8, 1, 1)})
    ranges = np.logspace(0, -4, 8, dtype=np.float32)
    for name in ("w0", "w2"):
        arrays[name] *= ranges.reshape(-1, 1, 1, 1)
    for name in ("w1", "w3"):
        arrays[name] /= ranges.reshape(1, -1, 1, 1)
    model, inputs = net(text, arrays), {"x": samples(LEAST_SAMPLES, 8, 8, 8)}
    twins, result = with_equalization(model, inputs)
    assert twins[-1].label == STREAMS and result.method.endswith(STREAMS)
    (note,) = (note for note in result.model.notes if "residual streams" in note)
    assert "'Conv_0'" in note and "to 1 where they are made" in note
    tried = {method + STREAMS for method in TRIED}
    assert tried <= result.noise_ratios.keys()  # without them neither method is better: all is noise
    assert result.noise_ratios[result.method] < result.noise_ratios[result.method.split(",")[0]] / 10
    unseen = {"x": samples(16, 8, 8, 8, seed=9)}
    want = run_ort(model.graph, unseen)[0]
    noise = np.square(run_ort(write(result.model), unseen)[0] - want).sum()
    assert noise < np.square(run_ort(write(fitted(model, inputs).model), unseen)[0] - want).sum() / 10


def test_where_the_outputs_gain_too_little_nothing_is_equalized():
    """Most of the noise is that of another branch."""
    text = """net (float[N,8,8,8] x) => (float[N,4,8,8] y) {
      h = Conv(x, first) r = Relu(h) d = Conv<group=8, pads=[1,1,1,1]>(r, deep) s = Conv(d, last)
      t = Conv(x, strong) y = Add(s, t) }"""
    ranges = np.logspace(0, -3, 8, dtype=np.float32).reshape(-1, 1, 1, 1)
    shapes = {"first": (8, 8, 1, 1), "deep": (8, 1, 3, 3), "last": (4, 8, 1, 1), "strong": (4, 8, 1, 1)}
    arrays = weights(shapes)
    arrays["first"] *= ranges
    arrays["strong"] *= 100
    twins, result = with_equalization(net(text, arrays), {"x": samples(LEAST_SAMPLES, 8, 8, 8)})
    assert twins and EQUALIZED not in result.method
    assert result.method + EQUALIZED in result.noise_ratios


def test_few_samples_do_not_show_the_ranges_of_channels():
    twins, result = with_equalization(uneven_net(), {"x": samples(LEAST_SAMPLES - 1, 8, 8, 8)})
    assert not twins and EQUALIZED not in result.method


@pytest.mark.parametrize("option", ["equalization", "per_channel"])
def test_equalization_is_off_on_request_and_for_weights_with_one_scale(option: str):
    model, inputs = uneven_net(), {"x": samples(LEAST_SAMPLES, 8, 8, 8)}
    twins, result = with_equalization(model, inputs, **{option: False})
    assert not twins and EQUALIZED not in result.method


def test_outliers_that_matter_to_nothing_are_clipped_and_those_that_matter_are_kept():
    ignored = fitted(outlier_net(outliers_count=False), outlier_inputs())
    needed = fitted(outlier_net(outliers_count=True), outlier_inputs())
    assert ignored.method == "entropy" and needed.method == "minmax"
    assert ignored.noise_ratios["entropy"] < ignored.noise_ratios["auto"] / 2
    assert needed.noise_ratios["auto"] < needed.noise_ratios["entropy"] / 2
    assert needed.noise_ratios["minmax"] < needed.noise_ratios["entropy"] / 2
    clipped, kept = ignored.model.activations["h"], needed.model.activations["h"]
    assert clipped.scale < kept.scale / 2


def test_whole_ranges_are_kept_where_outputs_hang_on_the_few_values_that_less_error_would_clip():
    """Of 160,000 values of h three are 8, clipped for the rest's sake; y reads their channel tenfold."""
    text = "net (float[N,16] x) => (float[N,16] y) { h = MatMul(x, first) y = MatMul(h, second) }"
    second = weights({"second": (16, 16)})["second"]
    second[0] *= 10
    x = samples(10_000, 16)
    x[:3, 0] = 8.0
    result = fitted(net(text, {"first": np.eye(16, dtype=np.float32), "second": second}), {"x": x})
    assert result.method == "minmax"
    assert result.noise_ratios["minmax"] < 0.8 * result.noise_ratios["auto"]


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
def test_a_named_method_is_taken_as_it_is_and_not_measured(method: str):
    result = fitted(resnet(), IMAGES, method=method)
    assert result.method == method and result.noise_ratios == {}


def test_the_float_model_runs_for_its_outputs_only_when_they_are_compared():
    model, config = resnet(), QuantizeConfig(bias_correction=False)
    reference = observe_reference(model, [IMAGES], config)
    stats = observe(model, (OPENVINO,), IMAGES)
    for method, runs in (("minmax", False), ("auto", True)):
        options = CalibrationConfig(method=method)
        fit(model, stats, OPENVINO, reference, config=config, calibration=options)
        assert ("outputs" in vars(reference)) == runs


def test_one_run_gives_means_and_outputs():
    model = resnet()
    once = observe_reference(model, [IMAGES], QuantizeConfig())
    apart = observe_reference(model, [IMAGES], QuantizeConfig(bias_correction=False))
    assert once.seen is not None and once.means and apart.seen is None and apart.means is None
    np.testing.assert_allclose(once.outputs, apart.outputs, rtol=1e-4, atol=1e-5)


def test_without_samples_nothing_is_measured_and_a_note_says_so():
    model = resnet()
    result = fitted(model, IMAGES, with_data=False)
    assert result.method == "auto" and result.noise_ratios == {}
    assert UNFITTED in result.model.notes
    assert UNFITTED not in fitted(model, IMAGES).model.notes
    assert result.model.graph is model.graph  # no bias was corrected


def test_a_model_with_integer_outputs_alone_is_quantized_without_measuring():
    text = "net (float[N,8] x) => (int64[N,1] y) { h = MatMul(x, w) y = ArgMax<axis=1>(h) }"
    result = fitted(net(text, weights({"w": (8, 8)})), {"x": samples(16, 8)})
    assert result.method == "auto" and result.noise_ratios == {} and result.model.has_int8


def test_integer_outputs_beside_float_ones_are_left_out():
    text = "net (float[N,8] x) => (int64[N,1] i, float[N,8] h) { h = MatMul(x, w) i = ArgMax<axis=1>(h) }"
    result = fitted(net(text, weights({"w": (8, 8)})), {"x": samples(16, 8)})
    assert all(0 < ratio < 0.01 for ratio in result.noise_ratios.values())


def test_biases_are_corrected_unless_switched_off():
    model = resnet()
    corrected = write(fitted(model, IMAGES).model)
    plain = write(fitted(model, IMAGES, bias_correction=False).model)
    first = constant(nodes(model.graph, "Conv")[0].inputs[2])
    assert not np.array_equal(constant(nodes(corrected, "Conv")[0].inputs[2]), first)
    assert np.array_equal(constant(nodes(plain, "Conv")[0].inputs[2]), first)


def test_bias_correction_lowers_the_noise_of_a_model_with_a_mean():
    model, inputs = resnet(), {"x": np.abs(samples(16, 3, 16, 16)) + 1}
    (want,) = run_ort(model.graph, inputs)
    noise = []
    for on in (True, False):
        made = fitted(model, inputs, target=ORT, method="minmax", bias_correction=on).model
        noise.append(np.linalg.norm(run_ort(write(made), inputs)[0] - want))
    assert noise[0] < noise[1]


def cancelling_net(*, sum_counts: bool):
    """Two convolutions whose first channels are wide and cancel in a residual sum, which a third reads."""
    text = """net (float[N,4,8,8] x) => (float[N,4,i,j] y) {
      a = Conv(x, wa) b = Conv(x, wb) s = Add(a, b) c = Conv(x, wc) t = Concat<axis=1>(s, c)
      y = Conv(t, last) }"""
    arrays = weights(dict.fromkeys(("wa", "wb", "wc"), (4, 4, 1, 1)) | {"last": (4, 8, 1, 1)})
    arrays["wa"][0] = 100.0
    arrays["wb"][0] = -100.0
    arrays["last"][:, :4] *= sum_counts
    return net(text, arrays)


def test_residual_sums_that_the_outputs_gain_by_are_in_floats():
    model, inputs = cancelling_net(sum_counts=True), {"x": samples(8, 4, 8, 8)}
    result = fitted(model, inputs, method="minmax", float_sums=True, equalization=False)
    assert result.method.startswith("minmax" + FLOAT_SUMS)
    assert result.noise_ratios["minmax" + FLOAT_SUMS] < result.noise_ratios["minmax"] / 2
    codes = {row.op_type: row.is_int8 for row in result.model.placement.decisions}
    assert codes["Conv"] and not codes["Add"]
    assert result.model.residual_sums == ()


def test_residual_sums_that_nothing_is_gained_by_stay_codes():
    model, inputs = cancelling_net(sum_counts=False), {"x": samples(8, 4, 8, 8)}
    result = fitted(model, inputs, method="minmax", float_sums=True, equalization=False)
    assert "minmax" + FLOAT_SUMS in result.noise_ratios
    assert FLOAT_SUMS not in result.method and len(result.model.residual_sums) == 1


def test_residual_sums_are_not_tried_where_one_side_is_added_as_it_is():
    model, inputs = cancelling_net(sum_counts=True), {"x": samples(8, 4, 8, 8)}
    result = fitted(model, inputs, target=CUDA, method="minmax", float_sums=True, equalization=False)
    assert FLOAT_SUMS not in result.method and not any(FLOAT_SUMS in way for way in result.noise_ratios)
