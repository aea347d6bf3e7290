# SPDX-License-Identifier: Apache-2.0
"""Q/DQ nodes that OpenVINO reads wrongly or not at all, in the form in which it reads them."""

import ml_dtypes
import numpy as np
import pytest

from quantrt.plan.openvino.codes import respell_codes
from quantrt.reference.metrics import sqnr_db
from tests.nets import edited, leaves_alone, net, run_openvino, samples
from tests.unit.model.contrib.test_codes import run

IMAGE = {"x": samples(2, 8, 6, 6)}
CONSTANTS = {
    "s": np.asarray(0.03, np.float32),
    "s2": np.asarray(0.05, np.float32),
    "z": np.asarray(-29, np.int8),
    "z2": np.asarray(-128, np.int8),
    "w": np.random.default_rng(2).integers(-127, 128, (8, 8, 3, 3)).astype(np.int8),
    "ws": np.linspace(0.0005, 0.002, 8, dtype=np.float32),
    "wz": np.zeros(8, np.int8),
    "b": np.arange(-400, 400, 100, dtype=np.int32),
}
TEXT = """net (float[N,8,6,6] x) => (float[N,8,6,6] y) {
  q = QuantizeLinear(x, s, z)
  dw = DequantizeLinear<axis=0>(w, ws, wz)
  d = DequantizeLinear(q, s, z)
  c = Conv<pads=[1,1,1,1]>(d, dw)
  r = Relu(c)
  q2 = QuantizeLinear(r, s2, z2)
  d2 = DequantizeLinear(q2, s2, z2)
  y = Conv<pads=[1,1,1,1]>(d2, dw)
}"""


def test_signed_zero_points_become_unsigned_ones():
    model = net(TEXT, CONSTANTS)
    graph = edited(respell_codes, model.graph)
    zeros = [node.inputs[2].const_value.numpy() for node in graph.graph if node.op_type == "QuantizeLinear"]
    assert [(zero.dtype, int(zero)) for zero in zeros] == [(np.uint8, 99), (np.uint8, 0)]
    (want,), (got,) = run(model.graph, IMAGE), run(graph, IMAGE)
    np.testing.assert_array_equal(want, got)
    assert sqnr_db(want, run_openvino(model.graph, IMAGE)[0]) > 30


def test_what_is_read_rightly_is_left_as_it_is():
    constants = {**CONSTANTS, "z": np.asarray(0, np.int8), "z2": np.asarray(0, np.int8)}
    model = net(TEXT, constants)
    assert leaves_alone(respell_codes, model.graph)


def test_codes_that_others_read_keep_their_type():
    text = TEXT.replace("=> (float[N,8,6,6] y)", "=> (float[N,8,6,6] y, int8[N,8,6,6] q)")
    graph = edited(respell_codes, net(text, CONSTANTS).graph)
    zeros = [node.inputs[2].const_value.numpy() for node in graph.graph if node.op_type == "QuantizeLinear"]
    assert [zero.dtype for zero in zeros] == [np.int8, np.uint8]


def test_integer_convolutions_with_scales_per_channel():
    text = """net (float[N,8,6,6] x) => (float[N,8,6,6] y) {
      q = QuantizeLinear(x, s, u)
      c = QLinearConv<pads=[1,1,1,1]>(q, s, u, w, ws, wz, s2, u, b)
      y = DequantizeLinear(c, s2, u)
    }"""
    model = net(text, {**CONSTANTS, "u": np.asarray(128, np.uint8)})
    (want,) = run(model.graph, IMAGE)
    assert sqnr_db(want, run_openvino(model.graph, IMAGE)[0]) > 40


@pytest.mark.parametrize("is_output", [True, False])
def test_pairs_of_16_bits_are_computed_in_floats(is_output: bool):
    text = """net (float[N,8,6,6] x) => (float[N,8,6,6] y) {
      q = QuantizeLinear(x, s, h) d = DequantizeLinear(q, s, h) y = Relu(d)
    }"""
    text = text.replace("y = Relu(d)", "y = Identity(d)") if is_output else text
    constants = {"s": np.asarray(0.0001, np.float32), "h": np.asarray(20000, np.uint16)}
    model = net(text, constants, opset=21)
    graph = edited(respell_codes, model.graph)
    assert not any("Quantize" in node.op_type for node in graph.graph)
    assert [value.name for value in graph.graph.outputs] == ["y"]
    (want,) = run(model.graph, IMAGE)
    np.testing.assert_allclose(want, run(graph, IMAGE)[0], rtol=1e-6)
    assert sqnr_db(want, run_openvino(model.graph, IMAGE)[0]) > 90


@pytest.mark.parametrize("block", [4, 6])
def test_weights_in_blocks_that_do_not_divide_their_axis(block: int, rng):
    count = -(-10 // block)
    arrays = {
        "w": rng.integers(-8, 8, (10, 5)).astype(ml_dtypes.int4),
        "s": rng.uniform(0.1, 0.2, (count, 5)).astype(np.float32),
    }
    text = f"net (float[N,10] x) => (float[N,5] y) {{ d = DequantizeLinear<axis=0, block_size={block}>(w, s) y = MatMul(x, d) }}"  # noqa: E501
    model = net(text, arrays, opset=21)
    inputs = {"x": samples(3, 10)}
    assert sqnr_db(run(model.graph, inputs)[0], run_openvino(model.graph, inputs)[0]) > 60
