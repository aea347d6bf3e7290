# SPDX-License-Identifier: Apache-2.0
import numpy as np
import onnx_ir as ir
import openvino
import pytest

from quantrt.ir.session import float_session
from quantrt.plan import lower
from quantrt.plan.openvino.tokens import turn_last
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import edited, leaves_alone, net, quantized, samples, weights
from tests.unit.model.check_pass import op_types

INPUTS = {"x": samples(2, 3, 4, 6)}
SHAPES = {"w": (8, 3, 1, 1), "v": (4, 8, 1, 1)}

HEADS = """net (float[N,3,4,6] x) => (float[N,4,4,6] y)
<int64[4] apart = {-1, 2, 4, 24}, int64[4] together = {-1, 8, 4, 6}> {
  m = Conv(x, w)
  a = Relu(m)
  h = Reshape(a, apart)
  t = Transpose<perm = [0, 1, 3, 2]>(h)
  s = Softmax(t)
  u = Transpose<perm = [0, 1, 3, 2]>(s)
  r = Reshape(u, together)
  y = Conv(r, v)
}"""

TOKENS = """net (float[N,3,4,6] x) => (float[N,4,4,6] y)
<int64[3] apart = {0, 8, 24}, int64[4] together = {0, 8, 4, 6}> {
  m = Conv(x, w)
  h = Reshape(m, apart)
  t = Transpose<perm = [0, 2, 1]>(h)
  s = Softmax(t)
  u = Transpose<perm = [0, 2, 1]>(s)
  r = Reshape(u, together)
  y = Conv(r, v)
}"""


def orders(graph: ir.Model) -> list[tuple[int, ...]]:
    return [tuple(node.attributes["perm"].as_ints()) for node in graph.graph if node.op_type == "Transpose"]


def outputs(graph: ir.Model) -> list[np.ndarray]:
    return list(float_session(graph, optimize=False).run(None, INPUTS))


def test_maps_become_rows_of_heads_and_rows_become_maps_where_channels_are_last():
    graph = net(HEADS, weights(SHAPES)).graph
    turned = edited(turn_last, graph)
    assert op_types(turned) == [
        *("Conv", "Relu", "Transpose", "Reshape", "Transpose", "Softmax"),
        *("Transpose", "Reshape", "Transpose", "Conv"),
    ]
    assert orders(turned) == [(0, 2, 3, 1), (0, 2, 1, 3), (0, 2, 1, 3), (0, 3, 1, 2)]
    assert orders(graph) == [(0, 1, 3, 2), (0, 1, 3, 2)]
    np.testing.assert_array_equal(outputs(turned)[0], outputs(graph)[0])


def test_rows_of_all_channels_are_not_moved_at_all():
    graph = net(TOKENS, weights(SHAPES)).graph
    turned = edited(turn_last, graph)
    assert orders(turned) == [(0, 2, 3, 1), (0, 3, 1, 2)]
    np.testing.assert_array_equal(outputs(turned)[0], outputs(graph)[0])


def test_three_parts_that_a_map_is_taken_apart_in_come_in_the_order_that_was_wanted():
    text = """net (float[N,3,4,6] x) => (float[2,N,2,24,2] y) <int64[5] apart = {0, 2, 2, 2, 24}> {
      m = Conv(x, w)
      h = Reshape(m, apart)
      y = Transpose<perm = [0, 2, 4, 1, 3]>(h)
    }"""
    graph = net(text, weights({"w": SHAPES["w"]})).graph
    turned = edited(turn_last, graph)
    assert orders(turned) == [(0, 2, 3, 1), (0, 3, 1, 2, 4)]
    np.testing.assert_array_equal(outputs(turned)[0], outputs(graph)[0])


def test_codes_are_turned_as_codes():
    graph = write(quantized(net(HEADS, weights(SHAPES)), OPENVINO, INPUTS))
    turned = edited(turn_last, graph)
    assert orders(turned)[-2:] == [(0, 2, 1, 3), (0, 3, 1, 2)]
    # The same codes are turned: only the order differs in which they are moved.
    np.testing.assert_array_equal(outputs(turned)[0], outputs(graph)[0])


def reorders(graph: ir.Model) -> int:
    """How often OpenVINO puts numbers into another order for a layer, in a run of INPUTS."""
    lowered = lower.lower_to_openvino(graph)
    core = openvino.Core()
    model = core.read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))
    model.reshape(list(INPUTS["x"].shape))
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    nodes = compiled.get_runtime_model().get_ordered_ops()
    names = [n.get_friendly_name() for n in nodes if n.get_rt_info()["layerType"].astype(str) == "Reorder"]
    return sum(not name.endswith("_fake") for name in names)  # those are views


def test_openvino_leaves_what_a_convolution_makes_in_its_order(monkeypatch: pytest.MonkeyPatch):
    text = """net (float[N,3,4,6] x) => (float[N,4,24,16] y) <int64[4] apart = {-1, 4, 32, 24}> {
      c = Conv(x, w)
      a = Relu(c)
      m = Conv(a, v)
      h = Reshape(m, apart)
      t = Transpose<perm = [0, 1, 3, 2]>(h)
      s = Softmax(t)
      y = MatMul(s, k)
    }"""
    shapes = {"w": (64, 3, 1, 1), "v": (128, 64, 1, 1), "k": (32, 16)}
    graph = write(quantized(net(text, weights(shapes)), OPENVINO, INPUTS))
    assert reorders(graph) == 1  # of the images
    monkeypatch.setattr(lower, "turn_last", lambda same: same)
    assert reorders(graph) == 2


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, w) h = Reshape(c, apart) y = Transpose<perm = [0, 2, 1, 3]>(h)",
        "a = Conv(x, w) c = Softmax(a) h = Reshape(c, apart) y = Transpose<perm = [0, 1, 3, 2]>(h)",
        "c = Conv(x, w) h = Reshape(c, apart) s = Relu(h) y = Transpose<perm = [0, 1, 3, 2]>(s)",
        "c = Conv(x, w) h = Reshape(c, apart) y = Transpose<perm = [1, 0, 3, 2]>(h)",
        "c = Conv(x, w) h = Reshape(c, apart) t = Transpose<perm = [0, 1, 3, 2]>(h) y = Mul(t, h)",
    ],
    ids=["pixels stay last", "not channels last", "not side by side", "images moved", "read twice"],
)
def test_other_moves_stay(body: str):
    shapes = "float[A,B,C,D] y"
    if body.endswith("Mul(t, h)"):
        body = body.replace("apart", "square")
    text = f"""net (float[N,3,4,6] x) => ({shapes})
    <int64[4] apart = {{0, 2, 4, 24}}, int64[4] square = {{0, 1, 192, 1}}> {{ {body} }}"""
    graph = net(text, weights({"w": SHAPES["w"]})).graph
    assert leaves_alone(turn_last, graph)
