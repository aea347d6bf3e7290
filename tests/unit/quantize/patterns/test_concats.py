# SPDX-License-Identifier: Apache-2.0
import openvino
import pytest

from quantrt.plan.lower import lower_to_openvino
from quantrt.quantize.patterns.concats import joins_other_axes
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import net, quantized, samples, weights

ROLLED = """net (float[N,4,6,16] x) => (float[N,A,16] y) <int64[3] rows = {0, -1, 16}> {
  n = LayerNormalization<axis = -1>(x, scale, shift)
  p, q = Split<axis = 2, num_outputs = 2>(n)
  c = Concat<axis = 2>(q, p)
  r = Reshape(c, rows)
  y = MatMul(r, w)
}"""
IMAGES = """net (float[N,4,6,16] x) => (float[N,5,6,16] y) {
  a = Conv(x, v)
  b = Conv(x, u)
  c = Concat<axis = 1>(a, b)
  y = Conv(c, t)
}"""
STACKED = """net (float[N,4,6,16] x) => (float[N,5,12,16] y) {
  a = Conv(x, v)
  b = Conv(x, u)
  c = Concat<axis = 2>(a, b)
  y = Conv(c, s)
}"""
TOKENS = """net (float[N,4,6,16] x) => (float[N,8,6,16] y) {
  a = MatMul(x, w)
  c = Concat<axis = 1>(a, x)
  y = MatMul(c, w)
}"""
SHAPES = {
    "scale": (16,),
    "shift": (16,),
    "w": (16, 16),
    "v": (8, 4, 1, 1),
    "u": (8, 4, 1, 1),
    "t": (5, 16, 1, 1),
    "s": (5, 8, 1, 1),
}
INPUTS = {"x": samples(2, 4, 6, 16)}


def made(text: str):
    text = text.replace(", num_outputs = 2", "")
    return net(
        text,
        weights({name: shape for name, shape in SHAPES.items() if f"{name})" in text or f"{name}," in text}),
    )


def concat(text: str):
    return next(node for node in made(text).graph.graph if node.op_type == "Concat")


@pytest.mark.parametrize(
    ("text", "is_other"), [(ROLLED, True), (STACKED, True), (TOKENS, True), (IMAGES, False)]
)
def test_only_channels_of_images_that_no_product_reads_are_joined_with_their_zero_points(
    text: str, is_other: bool
):
    assert joins_other_axes(concat(text), OPENVINO) is is_other
    assert not joins_other_axes(concat(text), ORT)


def test_what_is_no_concatenation_joins_nothing():
    assert not joins_other_axes(None, OPENVINO)
    assert not joins_other_axes(made(TOKENS).graph.graph[0], OPENVINO)


@pytest.mark.parametrize("text", [ROLLED, STACKED, TOKENS])
def test_openvino_computes_what_reads_them_in_codes(text: str):
    lowered = lower_to_openvino(write(quantized(made(text), OPENVINO, INPUTS)))
    core = openvino.Core()
    model = core.read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))
    model.reshape(list(INPUTS["x"].shape))
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    last = [
        node
        for node in compiled.get_runtime_model().get_ordered_ops()
        if node.get_rt_info()["layerType"].astype(str) in ("Convolution", "FullyConnected")
    ][-1]
    types = [port.get_element_type().get_type_name() for port in last.inputs()]
    assert types[0] in ("i8", "u8")
    assert types[1] == "i8"
