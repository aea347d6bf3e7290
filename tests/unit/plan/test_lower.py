# SPDX-License-Identifier: Apache-2.0
import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from quantrt.errors import DeviceError
from quantrt.model.load import make_model
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.runtime.executor import open_executor
from tests.nets import net, quantized, resnet, run_ort, samples, weights

LOWER = {"onnxruntime": lower_to_onnxruntime, "openvino": lower_to_openvino}
INPUTS = {"x": samples(2, 3, 16, 16)}


@pytest.mark.parametrize("library", LOWER)
def test_a_lowered_model_computes_what_the_graph_does(library: str):
    model = resnet()
    lowered = LOWER[library](model.graph)
    assert lowered.library == library and lowered.size_bytes > 4000
    executor = open_executor(lowered, ExecOptions(), output_names=["y"])
    np.testing.assert_allclose(executor.run(INPUTS)["y"], run_ort(model.graph, INPUTS)[0], atol=1e-4)
    executor.close()


def test_onnx_runtime_gets_its_large_weights_as_the_graphs_own_memory():
    own = weights({"w": (64, 64)})["w"]
    model = net("net (float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }", {"w": own})
    model.graph.graph.initializers["w"].const_value = ir.Tensor(own, name="w")
    lowered = lower_to_onnxruntime(model.graph)
    assert np.shares_memory(lowered.weights["w"], own)
    assert len(lowered.graph) < 1000


@pytest.mark.parametrize(("library", "target"), [("onnxruntime", ORT), ("openvino", OPENVINO)])
def test_int8_weights_stay_int8(library: str, target):
    text = "net (float[N,256] x) => (float[N,256] y) { h = MatMul(x, w) y = Relu(h) }"
    model = net(text, weights({"w": (256, 256)}))
    lowered = LOWER[library](write(quantized(model, target, {"x": samples(4, 256)})))
    assert lowered.size_bytes < 0.35 * LOWER[library](model.graph).size_bytes


def test_openvino_reads_a_model_that_names_operators_of_several_domains():
    text = """<ir_version: 10, opset_import: ["" : 17, "nobody" : 1, "ai.onnx.ml" : 3]>
    net (float[N,4] x) => (float[N,4] y) { y = Exp(x) }"""
    lowered = lower_to_openvino(make_model(ir.from_proto(onnx.parser.parse_model(text))).graph)
    executor = open_executor(lowered, ExecOptions(), output_names=["y"])
    x = samples(2, 4)
    np.testing.assert_allclose(executor.run({"x": x})["y"], np.exp(x), rtol=1e-5)
    executor.close()


def test_a_model_that_openvino_cannot_import_is_a_device_error():
    text = """<ir_version: 10, opset_import: ["" : 17, "nobody" : 1]>
    net (float[N,4] x) => (float[N,4] y) { y = nobody.Frobnicate(x) }"""
    model = make_model(ir.from_proto(onnx.parser.parse_model(text)))
    with pytest.raises(DeviceError, match="OpenVINO cannot import this model") as caught:
        lower_to_openvino(model.graph)
    assert "Frobnicate" in str(caught.value)


@pytest.mark.parametrize("shape", [(16, 16, 16), (1, 1, 300), (9, 15, 4)])
def test_constants_that_onnx_runtime_transposes_stay_what_they_are(shape: tuple[int, ...]):
    """ConvNeXt's global response norm: channels go last, are scaled, and go back."""
    text = """net (float[N,C,H,W] x) => (float[N,C,H,W] y) {
      last = Transpose<perm=[0,2,3,1]>(x) scaled = Mul(last, w) y = Transpose<perm=[0,3,1,2]>(scaled)
    }"""
    model = net(text, weights({"w": shape}))
    height, width, channels = (max(size, 2) for size in shape)
    images = {"x": samples(2, channels, height, width)}
    executor = open_executor(lower_to_onnxruntime(model.graph), ExecOptions())
    want = images["x"] * model.graph.graph.initializers["w"].const_value.numpy().transpose(2, 0, 1)
    np.testing.assert_array_equal(executor.run(images)["y"], want)
    executor.close()


@pytest.mark.parametrize(
    ("text", "shape", "is_shared"),
    [
        ("y = Gemm(x, w)", (64, 64), True),
        ("d = DequantizeLinear(w, s) y = MatMul(x, d)", (64, 64), True),
        ("d = DequantizeLinear(w, s) y = Add(x, d)", (1, 1024), False),
        ("d = MatMul(x, w) y = Mul(d, w)", (64, 64), False),
    ],
)
def test_weights_are_shared_where_nothing_moves_them(text: str, shape: tuple[int, ...], is_shared: bool):
    own = weights({"w": shape})["w"]
    if "Dequantize" in text:
        own = own.astype(np.int8)
    model = net(f"net (float[N,M] x) => (float[N,M] y) {{ {text} }}", {"w": own, "s": np.float32(0.1)})
    assert ("w" in lower_to_onnxruntime(model.graph).weights) is is_shared
