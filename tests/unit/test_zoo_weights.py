# SPDX-License-Identifier: Apache-2.0
"""Graphs travel without their weights, and have the same ones where they are filled."""

import numpy as np
import onnx
from onnx import numpy_helper, parser

from benchmarks.zoo_weights import draw, filled, without_weights

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
net (float[2,40] x) => (float[2,50] y)
{ a = MatMul(x, w) b = MatMul(a, v) c = Add(b, bias) y = Mul(c, own) }"""
DRAWS = {"layer.weight": (0.5, (60, 40)), "head.weight": (0.25, (60, 50))}


def test_what_is_drawn_is_left_out_and_put_back_bit_for_bit():
    arrays = {
        "w": draw("layer.weight", 0.5, (60, 40)).T,  # as exporters transpose a linear layer's
        "v": draw("head.weight", 0.25, (60, 50)),
        "bias": np.linspace(-1, 1, 50, dtype=np.float32),
        "own": np.random.default_rng(0).random((20, 50), np.float32)[:1].repeat(20, 0)[0],
    }
    model = parser.parse_model(TEXT)
    tensors = (numpy_helper.from_array(np.ascontiguousarray(x), name) for name, x in arrays.items())
    model.graph.initializer.extend(tensors)
    left = without_weights(model, DRAWS)
    emptied = onnx.load_from_string(model.SerializeToString())
    assert left == 0
    assert [len(tensor.raw_data) for tensor in emptied.graph.initializer] == [0, 0, 200, 200]
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in filled(emptied).graph.initializer}
    for name, want in arrays.items():
        np.testing.assert_array_equal(found[name], want)


def test_large_constants_that_are_no_draws_stay_and_are_counted():
    model = parser.parse_model(TEXT)
    other = np.ones((40, 60), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(other, "w"))
    assert without_weights(model, DRAWS) == other.nbytes
    np.testing.assert_array_equal(numpy_helper.to_array(filled(model).graph.initializer[0]), other)
