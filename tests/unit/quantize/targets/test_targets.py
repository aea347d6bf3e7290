# SPDX-License-Identifier: Apache-2.0
"""Each target's Q/DQ model does what that runtime needs, shown in the runtimes themselves."""

import numpy as np
import pytest

from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import quantize
from quantrt.quantize.target import Target
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT
from quantrt.reference.metrics import sqnr_db
from tests.nets import (
    CONV,
    constant,
    net,
    nodes,
    observe,
    openvino_kernels,
    ort_kernels,
    quantized,
    resnet,
    run_openvino,
    run_ort,
    samples,
    weights,
)

IMAGES = {"x": samples(8, 3, 16, 16)}


@pytest.fixture(scope="module")
def written():
    """The residual network, calibrated once, written for each target."""
    model = resnet()
    stats = observe(model, TARGETS, IMAGES)
    graphs = {
        target.name: write(quantize(model, stats, target, QuantizeConfig(), CalibrationConfig()))
        for target in TARGETS
    }
    return model, graphs


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_one_calibration_serves_every_target_in_onnx_runtime(written, target: Target):
    model, graphs = written
    (wanted,), (got,) = run_ort(model.graph, IMAGES), run_ort(graphs[target.name], IMAGES)
    assert sqnr_db(wanted, got) > 20.0


@pytest.mark.parametrize("target", [ORT, OPENVINO], ids=lambda target: target.name)
def test_openvino_runs_what_is_written_for_it_and_for_onnx_runtime(written, target: Target):
    model, graphs = written
    (wanted,), (got,) = run_ort(model.graph, IMAGES), run_openvino(graphs[target.name], IMAGES)
    assert sqnr_db(wanted, got) > 20.0


def test_onnx_runtime_runs_every_layer_in_8_bits(written):
    _, graphs = written
    kernels = ort_kernels(graphs["ort"])
    assert kernels["QLinearConv"] == 4 and kernels["Conv"] == 0
    assert kernels["QGemm"] == 1 and kernels["QLinearAdd"] == 1 and kernels["QLinearGlobalAveragePool"] == 1
    assert kernels["QuantizeLinear"] == 1 and kernels["Relu"] == 0
    assert kernels["DequantizeLinear"] == 0


def test_openvino_runs_every_convolution_in_8_bits(written):
    _, graphs = written
    kernels = openvino_kernels(graphs["openvino"], (1, 3, 16, 16))
    assert kernels[("Convolution", "i8")] + kernels[("Convolution", "u8")] == 4
    assert sum(count for (layer, _), count in kernels.items() if layer == "Convolution") == 4


def test_tensorrt_export_is_symmetric_without_integer_biases(written):
    _, graphs = written
    graph = graphs["tensorrt"]
    for node in (*nodes(graph, "QuantizeLinear"), *nodes(graph, "DequantizeLinear")):
        zero_point = constant(node.inputs[2])
        assert zero_point.dtype == np.int8 and not zero_point.any()
        is_weight = node.inputs[0].const_value is not None
        assert is_weight or constant(node.inputs[1]).shape == ()
        assert not is_weight or constant(node.inputs[0]).dtype == np.int8
    for node in (*nodes(graph, "Conv"), *nodes(graph, "Gemm")):
        assert constant(node.inputs[2]).dtype == np.float32
    (add,) = nodes(graph, "Add")
    assert [value.producer().op_type for value in add.inputs] == ["Conv", "DequantizeLinear"]


def test_onnx_runtime_gets_int32_biases_on_the_accumulators_grid(written):
    _, graphs = written
    for node in (*nodes(graphs["ort"], "Conv"), *nodes(graphs["ort"], "Gemm")):
        x, w, b = (value.producer() for value in node.inputs)
        assert constant(b.inputs[0]).dtype == np.int32
        x_scale, w_scale, b_scale = (constant(part.inputs[1]) for part in (x, w, b))
        np.testing.assert_allclose(b_scale, x_scale * w_scale, rtol=1e-6)


def test_pools_reshapes_and_what_they_read_share_one_grid(written):
    _, graphs = written
    scales = {
        node.inputs[0].name: constant(node.inputs[1]) for node in nodes(graphs["ort"], "QuantizeLinear")
    }
    assert scales["r2"] == scales["pool"] and scales["mean"] == scales["flat"]


CASES = {
    "depthwise": (
        "net (float[N,8,8,8] x) => (float[N,8,8,8] y) { y = Conv<group=8, pads=[1,1,1,1]>(x, w, b) }",
        {"w": (8, 1, 3, 3), "b": (8,)},
        (8, 8, 8, 8),
    ),
    "grouped": (
        "net (float[N,8,8,8] x) => (float[N,4,8,8] y) { y = Conv<group=2, pads=[1,1,1,1]>(x, w, b) }",
        {"w": (4, 4, 3, 3), "b": (4,)},
        (8, 8, 8, 8),
    ),
    "convolution without a bias": (
        "net (float[N,3,8,8] x) => (float[N,8,8,8] y) { y = Conv<pads=[1,1,1,1]>(x, w) }",
        {"w": (8, 3, 3, 3)},
        (8, 3, 8, 8),
    ),
    "one-dimensional convolution": (
        "net (float[N,3,16] x) => (float[N,8,14] y) { y = Conv(x, w, b) }",
        {"w": (8, 3, 3), "b": (8,)},
        (8, 3, 16),
    ),
    "transposed convolution": (
        "net (float[N,4,8,8] x) => (float[N,6,16,16] y) { "
        "y = ConvTranspose<strides=[2,2], kernel_shape=[2,2]>(x, w, b) }",
        {"w": (4, 6, 2, 2), "b": (6,)},
        (8, 4, 8, 8),
    ),
    "grouped transposed convolution": (
        "net (float[N,4,8,8] x) => (float[N,6,16,16] y) { "
        "y = ConvTranspose<strides=[2,2], kernel_shape=[2,2], group=2>(x, w, b) }",
        {"w": (4, 3, 2, 2), "b": (6,)},
        (8, 4, 8, 8),
    ),
    "product with weights [K, N]": (
        "net (float[N,5,8] x) => (float[N,5,4] y) { y = MatMul(x, w) }",
        {"w": (8, 4)},
        (8, 5, 8),
    ),
    "product with weights [B, K, N]": (
        "net (float[N,3,5,8] x) => (float[N,3,5,4] y) { y = MatMul(x, w) }",
        {"w": (3, 8, 4)},
        (8, 3, 5, 8),
    ),
    "product with a vector": (
        "net (float[N,8] x) => (float[N] y) { y = MatMul(x, w) }",
        {"w": (8,)},
        (64, 8),
    ),
    "Gemm with transposed weights": (
        "net (float[N,8] x) => (float[N,4] y) { y = Gemm<transB=1>(x, w, b) }",
        {"w": (4, 8), "b": (4,)},
        (64, 8),
    ),
    "Gemm with a bias [1, N]": (
        "net (float[N,8] x) => (float[N,4] y) { y = Gemm(x, w, b) }",
        {"w": (8, 4), "b": (1, 4)},
        (64, 8),
    ),
    "Gemm with one bias for all": (
        "net (float[N,8] x) => (float[N,4] y) { y = Gemm(x, w, b) }",
        {"w": (8, 4), "b": (1,)},
        (64, 8),
    ),
    "Gemm with a bias per row": (
        "net (float[64,8] x) => (float[64,4] y) { y = Gemm(x, w, b) }",
        {"w": (8, 4), "b": (64, 1)},
        (64, 8),
    ),
    "Gemm without a bias": (
        "net (float[N,8] x) => (float[N,4] y) { y = Gemm(x, w) }",
        {"w": (8, 4)},
        (64, 8),
    ),
}


@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_layer_is_close_to_float(case: str, target: Target, per_channel: bool):
    text, shapes, shape = CASES[case]
    model, inputs = net(text, weights(shapes)), {"x": samples(*shape)}
    graph = write(quantized(model, target, inputs, per_channel=per_channel))
    (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
    assert sqnr_db(wanted, got) > 25.0


@pytest.mark.parametrize("case", [case for case in CASES if case != "product with a vector"])
def test_openvino_runs_every_kind_of_layer(case: str):
    text, shapes, shape = CASES[case]
    model, inputs = net(text, weights(shapes)), {"x": samples(*shape)}
    (wanted,), (got,) = (
        run_ort(model.graph, inputs),
        run_openvino(write(quantized(model, OPENVINO, inputs)), inputs),
    )
    assert sqnr_db(wanted, got) > 25.0


@pytest.mark.parametrize(
    "case",
    [
        "depthwise",
        "grouped",
        "convolution without a bias",
        "one-dimensional convolution",
    ],
)
@pytest.mark.parametrize("bias_correction", [True, False])
def test_onnx_runtime_runs_every_convolution_in_8_bits(case: str, bias_correction: bool):
    text, shapes, shape = CASES[case]
    graph = write(
        quantized(net(text, weights(shapes)), ORT, {"x": samples(*shape)}, bias_correction=bias_correction)
    )
    assert ort_kernels(graph)["QLinearConv"] == 1


@pytest.mark.parametrize("activation", ["Relu(h)", "Clip(h, zero, six)"])
def test_an_activation_between_a_convolution_and_its_quantization_costs_onnx_runtime_nothing(activation: str):
    text = f"""net (float[N,3,8,8] x) => (float[N,8,8,8] y) {{ h = Conv<pads=[1,1,1,1]>(x, w, b)
    r = {activation} y = Conv<pads=[1,1,1,1]>(r, v) }}"""
    arrays = weights({"w": (8, 3, 3, 3), "b": (8,), "v": (8, 8, 3, 3)})
    arrays["w"] *= 10  # so that six is reached
    if "zero" in text:
        arrays |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    for method in ("minmax", "entropy", "auto"):
        graph = write(quantized(net(text, arrays), ORT, {"x": samples(8, 3, 8, 8)}, method=method))
        kernels = ort_kernels(graph)
        assert kernels["QLinearConv"] == 2 and kernels["Relu"] == kernels["Clip"] == 0


def channel_noise(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """RMS difference per output channel of a convolution quantized for ONNX Runtime, float64 [8]."""
    model, inputs = net(CONV, arrays), {"x": samples(8, 3, 8, 8)}
    graph = write(quantized(model, ORT, inputs, bias_correction=False))
    (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
    return np.sqrt(np.square(wanted.astype(np.float64) - got).mean(axis=(0, 2, 3)))


@pytest.mark.parametrize("factor", [0.0, 1e-9, 1e-30], ids=["zero", "tiny", "all but zero"])
def test_a_channel_of_hardly_any_weight_keeps_its_bias(factor: float):
    arrays = weights({"w": (8, 3, 3, 3), "b": (8,)})
    arrays["w"][2] *= np.float32(factor)
    arrays["b"][2] = 0.7
    noise = channel_noise(arrays)
    assert noise[2] <= noise.max() <= 0.02


def test_no_channel_of_a_pixel_input_loses_its_bias_to_a_coarse_scale():
    arrays = weights({"w": (8, 3, 3, 3), "b": (8,)})
    arrays["w"] /= 255
    arrays["w"][5] = 0
    model, inputs = net(CONV, arrays), {"x": np.abs(samples(8, 3, 8, 8)) * 80}
    graph = write(quantized(model, ORT, inputs))
    (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
    np.testing.assert_allclose(got[:, 5], wanted[:, 5], atol=0.02)


def test_tensorrt_sums_of_two_convolutions_and_attention_run(written):
    text = """net (float[N,4,8] x) => (float[N,4,8] y) {
    q = MatMul(x, a) k = MatMul(x, b) v = MatMul(x, c) t = Transpose<perm=[0,2,1]>(k)
    s = MatMul(q, t) p = Softmax<axis=-1>(s) y = MatMul(p, v) }"""
    model, inputs = net(text, weights({"a": (8, 8), "b": (8, 8), "c": (8, 8)})), {"x": samples(16, 4, 8)}
    for target in TARGETS:
        graph = write(quantized(model, target, inputs))
        (wanted,), (got,) = run_ort(model.graph, inputs), run_ort(graph, inputs)
        assert sqnr_db(wanted, got) > 25.0
    assert len(nodes(write(quantized(model, TENSORRT, inputs)), "QuantizeLinear")) >= 5
    (got,) = run_openvino(write(quantized(model, OPENVINO, inputs)), inputs)
    assert sqnr_db(run_ort(model.graph, inputs)[0], got) > 25.0
