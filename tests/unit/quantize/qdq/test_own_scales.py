# SPDX-License-Identifier: Apache-2.0
"""Float products between codes stay float in a session of ONNX Runtime without any option."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.session import float_session
from quantrt.model.model import Model
from quantrt.quantize.lint.placement_rules import placement_findings
from quantrt.quantize.qdq.own_scales import give_own_scales
from quantrt.quantize.qdq.requantized import requantized_products
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from tests.nets import net, quantized, samples, weights

CONVS = """net (float[N,4,8,8] x) => (float[N,6,8,8] y, float[N,6,8,8] z) {
    [first] a = Conv <pads = [1,1,1,1]> (x, w0)
    [middle] b = Conv <group = 2, pads = [1,1,1,1]> (a, w1)
    [side] c = Conv (a, w2)
    [last] y = Conv (b, w3)
    [other] z = Conv (c, w4)
}"""
CONV_WEIGHTS = {
    "w0": (8, 4, 3, 3),
    "w1": (8, 4, 3, 3),
    "w2": (8, 8, 1, 1),
    "w3": (6, 8, 1, 1),
    "w4": (6, 8, 1, 1),
}

GEMM = """net (float[{rows}] x) => (uint8[N,7] y) {{
    q = QuantizeLinear (x, scale, zero)
    d = DequantizeLinear (q, scale, zero)
    [middle] b = Gemm <transA = {a}, transB = {b}> (d, w)
    y = QuantizeLinear (b, scale, zero)
}}"""


def written(model: Model, shape: tuple[int, ...], *kept: str) -> ir.Model:
    return write(quantized(model, ORT, {"x": samples(*shape)}, exclude=kept))


def convs() -> Model:
    return net(CONVS, weights(CONV_WEIGHTS))


def run(graph: ir.Model, inputs: np.ndarray, **options: bool) -> np.ndarray:
    made: np.ndarray = float_session(graph, **options).run(None, {"x": inputs})[0]
    return made


def test_a_session_without_options_computes_what_the_model_says():
    graph = written(convs(), (16, 4, 8, 8), "middle", "side")
    assert set(requantized_products(graph)) == {"middle", "side"}
    made, inputs = give_own_scales(graph), samples(4, 4, 8, 8)
    assert requantized_products(made) == ()
    wanted = run(graph, inputs, keep_floats=True)
    assert not np.array_equal(run(graph, inputs, keep_floats=False), wanted)
    np.testing.assert_array_equal(run(made, inputs, keep_floats=False), wanted)
    np.testing.assert_array_equal(run(made, inputs, optimize=False), run(graph, inputs, optimize=False))


def test_the_scales_are_those_of_the_codes_for_the_linter():
    made = give_own_scales(written(convs(), (16, 4, 8, 8), "middle", "side"))
    assert {found.rule.name for found in placement_findings(made.graph)} <= {"one-sided"}


def test_two_that_read_the_same_codes_share_the_scales():
    graph = written(convs(), (16, 4, 8, 8), "middle", "side")
    made = give_own_scales(graph)
    nodes = {node.name: node for node in made.graph}
    assert nodes["middle"].inputs[0] is nodes["side"].inputs[0]
    maker = nodes["middle"].inputs[0].producer()
    assert maker.inputs[1].const_value.shape == (8,)
    counts = [sum(node.op_type == "DequantizeLinear" for node in one.graph) for one in (graph, made)]
    assert counts[0] == counts[1], "the pair that nothing reads any more is gone"


@pytest.mark.parametrize("a", [0, 1])
@pytest.mark.parametrize("b", [0, 1])
def test_a_gemm_has_a_scale_for_each_of_its_columns(a: int, b: int):
    shape = (10, 7) if b == 0 else (7, 10)
    grid = {"scale": np.asarray(0.1, np.float32), "zero": np.asarray(3, np.uint8)}
    graph = net(GEMM.format(rows="10,N" if a else "N,10", a=a, b=b), weights({"w": shape}) | grid).graph
    made, inputs = give_own_scales(graph), samples(*((10, 4) if a else (4, 10)))
    assert requantized_products(graph) == ("middle",) and requantized_products(made) == ()
    np.testing.assert_array_equal(run(made, inputs, keep_floats=False), run(graph, inputs))


def test_what_has_no_such_products_is_left_alone():
    graph = written(convs(), (16, 4, 8, 8))
    assert give_own_scales(graph) is graph


def test_a_single_channel_has_no_other_scale():
    text = """net (float[N,4,8,8] x) => (float[N,6,8,8] y) {
        [first] a = Conv (x, w0)
        [middle] b = Conv (a, w1)
        [last] y = Conv (b, w2)
    }"""
    model = net(text, weights({"w0": (1, 4, 1, 1), "w1": (5, 1, 1, 1), "w2": (6, 5, 1, 1)}))
    graph = written(model, (16, 4, 8, 8), "middle")
    assert requantized_products(graph) == requantized_products(give_own_scales(graph)) == ("middle",)
