# SPDX-License-Identifier: Apache-2.0
"""Engines whose products run as convolutions of rows are compared with the float model's products."""

from collections import Counter

import numpy as np
import pytest

from quantrt.plan.onnxruntime.rows import convolve_rows
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.report.layer_errors.rows import in_rows, multiply_rows
from tests.nets import edited, net, quantized, resnet, run_ort, samples, weights

CODER = """net (float[N,24] x) => (float[N,8] y) {
    a = Gemm(x, w1)
    b = Relu(a)
    c = Gemm<transB=1>(b, w2, b2)
    y = Gemm(c, w3)
}"""
SHAPES = {"w1": (24, 32), "w2": (16, 32), "b2": (16,), "w3": (16, 8)}


def test_products_are_what_they_were():
    model = net(CODER, weights(SHAPES))
    graph = write(quantized(model, ORT, {"x": samples(64, 24)}))
    spelled = edited(convolve_rows, graph)
    back = multiply_rows(spelled, model.graph)
    kinds = Counter(node.op_type for node in back.graph)
    assert kinds["Gemm"] == 3 and not {"Conv", "Reshape", "Transpose"} & kinds.keys()
    assert any(node.op_type == "Conv" for node in spelled.graph)  # a copy was rewritten
    x = {"x": samples(5, 24, seed=7)}
    for got, wanted in zip(run_ort(back, x), run_ort(graph, x), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_what_the_model_moves_itself_stays():
    moved = CODER.replace("float[N,24] x", "float[N,4,6] x").replace("Gemm(x, w1)", "Gemm(flat, w1)")
    model = net(
        moved.replace("{\n", "{\n    flat = Reshape(x, sizes)\n", 1),
        weights(SHAPES) | {"sizes": np.array([-1, 24])},
    )
    next(node for node in model.graph.graph if node.op_type == "Reshape").name = "fc.rows"
    graph = write(quantized(model, ORT, {"x": samples(64, 4, 6)}))
    back = multiply_rows(edited(convolve_rows, graph), model.graph)
    assert [node.name for node in back.graph if node.op_type in ("Reshape", "Transpose")] == ["fc.rows"]


def test_convolutions_of_the_model_stay():
    model = resnet()
    graph = write(quantized(model, ORT, {"x": samples(2, 3, 16, 16)}))
    assert multiply_rows(graph, model.graph) is graph


@pytest.mark.parametrize(("made", "shape"), [((1, 3, 5), (5, 3)), ((5, 3), (5, 3)), ((15,), (5, 3))])
def test_columns_are_turned_to_rows(made: tuple[int, ...], shape: tuple[int, ...]):
    array = np.arange(15.0).reshape(made)
    wanted = np.moveaxis(array[0], 0, 1) if len(made) == 3 else array.reshape(shape)
    np.testing.assert_array_equal(in_rows(array, shape), wanted)
