# SPDX-License-Identifier: Apache-2.0
"""Products of codes in a row: which become convolutions, and that these make the same bits."""

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.onnxruntime.rows import convolve_rows
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.runtime.executor import open_executor
from quantrt.runtime.onnxruntime.watch import optimized_graph
from tests.nets import edited, leaves_alone, net, quantized, run_ort, samples, weights

SHAPES = {"w1": (24, 32), "b1": (32,), "w2": (8, 32), "b2": (8,), "w3": (8, 16), "w4": (16, 8), "b4": (8,)}
CODER = """net (float[N,24] x) => (float[N,8] y) {
    a = Gemm(x, w1, b1)
    b = Relu(a)
    c = Gemm<transB=1>(b, w2, b2)
    d = Gemm(c, w3)
    e = Relu(d)
    y = Gemm(e, w4, b4)
}"""


def coded(text: str = CODER, shapes: dict[str, tuple[int, ...]] = SHAPES, **changes: np.ndarray) -> ir.Model:
    """A network of Gemms in Q/DQ form, as ONNX Runtime gets it."""
    model = net(text, {**weights(shapes), **changes})
    return write(quantized(model, ORT, {"x": samples(64, 24)}))


def kinds(graph: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in graph.graph)


def kernels(graph: ir.Model) -> Counter[str]:
    """What ONNX Runtime runs."""
    made = optimized_graph(lower_to_onnxruntime(graph), ExecOptions())
    return Counter(node.op_type for node in made.graph.node)


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_the_same_bits_come_out_at_any_batch(rows: int):
    graph = coded()
    x = {"x": samples(rows, 24, seed=7)}
    wanted = run_ort(graph, x)
    assert np.abs(wanted[0]).max() > 0.1
    np.testing.assert_array_equal(run_ort(edited(convolve_rows, graph), x), wanted)


def test_only_a_reshape_is_left_at_both_ends():
    graph = coded()
    assert kinds(edited(convolve_rows, graph))["Conv"] == 3
    assert kernels(graph) == {"QuantizeLinear": 1, "Reshape": 2, "QLinearConv": 3, "QGemm": 1}
    assert kinds(graph)["Gemm"] == 4  # a copy was rewritten


def test_convolutions_have_the_names_of_their_products():
    graph = coded()
    products = [node.name for node in graph.graph if node.op_type == "Gemm"]
    made = [node for node in edited(convolve_rows, graph).graph if node.op_type in ("Conv", "Gemm")]
    assert [node.name for node in made] == products
    assert [node.outputs[0].name for node in made] == [
        node.outputs[0].name for node in graph.graph if node.op_type == "Gemm"
    ]


def test_who_else_reads_the_codes_gets_rows():
    text = CODER.replace("=> (float[N,8] y)", "=> (float[N,8] y, float[N,32] z)").replace(
        "y = Gemm", "z = Neg(b)\n    y = Gemm"
    )
    graph = coded(text)
    x = {"x": samples(3, 24, seed=7)}
    found = run_ort(edited(convolve_rows, graph), x)
    assert found[1].shape == (3, 32)
    for got, wanted in zip(found, run_ort(graph, x), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_two_readers_of_the_same_codes_turn_them_once():
    text = """net (float[N,24] x) => (float[N,8] y, float[N,8] z) {
        a = Gemm(x, w1, b1)
        b = Relu(a)
        c = Gemm<transB=1>(b, w2, b2)
        d = Gemm<transB=1>(b, w5, b2)
        y = Gemm(c, w6)
        z = Gemm(d, w6)
    }"""
    shapes = {**{name: SHAPES[name] for name in ("w1", "b1", "w2", "b2")}, "w5": (8, 32), "w6": (8, 8)}
    graph = coded(text, shapes)
    assert kinds(edited(convolve_rows, graph)) == kinds(graph) + Counter(
        Conv=3, Reshape=3, Transpose=3
    ) - Counter(Gemm=3)
    x = {"x": samples(5, 24, seed=7)}
    np.testing.assert_array_equal(run_ort(edited(convolve_rows, graph), x), run_ort(graph, x))


ALONE = "net (float[N,24] x) => (float[N,32] y) { a = Gemm(x, w1, b1) y = Gemm(a, w) }"
BENT = CODER.replace("Relu", "Tanh")
OTHERS = {
    "one product that makes codes": coded(ALONE, {"w1": (24, 32), "b1": (32,), "w": (32, 32)}),
    "another activation between them": coded(BENT),
    "floats": net(CODER, weights(SHAPES)).graph,
}


@pytest.mark.parametrize("graph", OTHERS.values(), ids=OTHERS)
def test_others_stay(graph: ir.Model):
    assert leaves_alone(convolve_rows, graph)


def test_one_scale_for_a_weight_stays_a_product():
    graph = coded()
    for node in graph.graph:
        if node.op_type == "DequantizeLinear" and node.inputs[0].is_initializer():
            node.inputs[1].const_value = ir.tensor(node.inputs[1].const_value.numpy().reshape(-1)[:1])
    assert leaves_alone(convolve_rows, graph)


def test_an_engine_runs_them():
    graph = coded()
    executor = open_executor(lower_to_onnxruntime(graph), ExecOptions(), output_names=["y"])
    x = {"x": samples(4, 24, seed=7)}
    np.testing.assert_array_equal(executor.run(x)["y"], run_ort(graph, x)[0])
    executor.close()
