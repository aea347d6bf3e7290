# SPDX-License-Identifier: Apache-2.0
"""A contender of `benchmarks` that computes nothing on codes has failed, however near it is to FP32."""

from contextlib import nullcontext

import numpy as np
import onnx_ir as ir
import openvino
import pytest
from openvino import opset13 as ops

from benchmarks.peers.contenders import Contender, Opened
from benchmarks.peers.on_codes import file_products, placed_products
from benchmarks.tasks.judge import Outputs, judge
from benchmarks.tasks.task import Task
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from tests.nets import net, quantized, resnet, samples

IMAGES = {"x": samples(8, 3, 16, 16)}
CODED = """net (float[N,4] x, float s, int8 z) => (float[N,4] y, float[N,4] side) {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  turned = Transpose<perm=[1,0]>(d)
  back = Transpose<perm=[1,0]>(turned)
  w = DequantizeLinear(b, s, z)
  y = MatMul(back, w)
  side = MatMul(d, a)
}"""
BRANCHED = """net (float[N,4] x, bool is_left) => (float[N,4] y) {
  y = If(is_left) <then_branch = left () => (float[N,4] l) { l = MatMul(x, a) },
                   else_branch = right () => (float[N,4] r) { r = MatMul(x, b) }>
}"""
SQUARE = np.eye(4, dtype=np.float32)


def counted(graph: ir.Model, tmp_path) -> dict:
    path = tmp_path / "model.onnx"
    ir.save(graph, path)
    return file_products(path, {})


def test_a_product_is_on_codes_where_both_operands_are(tmp_path):
    graph = net(CODED, {"a": SQUARE, "b": np.eye(4, dtype=np.int8)}).graph
    assert counted(graph, tmp_path) == {"products": 2, "in_floats": 1}, "one weight is in floats"


def test_products_in_branches_count(tmp_path):
    arrays = {"a": SQUARE, "b": SQUARE}
    assert counted(net(BRANCHED, arrays).graph, tmp_path) == {"products": 2, "in_floats": 2}


def test_what_is_placed_is_what_the_file_has(tmp_path):
    model = quantized(resnet(), ORT, IMAGES, exclude=("Conv_2",))
    found = placed_products(model)
    assert found == {"products": 5, "in_floats": 1}
    assert counted(write(model), tmp_path) == found
    assert counted(resnet().graph, tmp_path) == {"products": 5, "in_floats": 5}


def test_of_openvino_the_share_of_multiply_adds_is_told_too(tmp_path):
    x = ops.parameter([-1, 4], np.float32, name="x")
    low, high = np.float32(-1), np.float32(1)
    codes = ops.fake_quantize(x, low, high, low, high, 256)
    first = ops.matmul(codes, np.ones((4, 12), np.float32), False, False)
    second = ops.matmul(first, np.ones((12, 1), np.float32), False, False)
    path = tmp_path / "model.xml"
    openvino.save_model(openvino.Model([second], [x]), path)
    found = file_products(path, {"x": np.zeros((1, 4), np.float32)})
    assert found == {"products": 2, "in_floats": 1, "float_ratio": pytest.approx(12 / 60)}


@pytest.mark.parametrize("in_floats", [1, 2])
def test_floats_alone_have_failed_whatever_their_noise(in_floats):
    task = Task("tiny", None, [], [{"x": np.ones((3, 2), np.float32)}], np.arange(3), None)
    reference = Outputs(["y"])
    reference.add({"y": np.ones((3, 2), np.float32)})
    opened = Opened(lambda feed: {"y": feed["x"] * 1.001}, {"products": 2, "in_floats": in_floats})
    row = judge(Contender("peer", lambda: nullcontext(opened)), task, reference).row
    if in_floats == 2:
        assert row == {"error": "it quantizes nothing: none of 2 products is on codes"}
    else:
        assert row == {"sqnr_db": {"y": pytest.approx(60, abs=0.1)}, "products": 2, "in_floats": 1}
