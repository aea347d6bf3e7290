# SPDX-License-Identifier: Apache-2.0
import pytest

from quantrt.quantize.patterns.gates import gate_nodes
from tests.nets import net, weights

SHAPES = {"w1": (2, 4, 1, 1), "w2": (4, 2, 1, 1), "three": (1,), "six": (1,)}


def gates(body: str) -> set[str]:
    text = f"net (float[N,4,8,8] x) => (float[N,4,8,8] y) {{ {body} }}"
    used = {name: array for name, array in weights(SHAPES).items() if name in body}
    return set(gate_nodes(net(text, used).graph.graph))


def test_the_layers_of_a_squeeze_and_excite_block():
    body = """p = GlobalAveragePool(x) a = Conv(p, w1) r = Relu(a)
    b = Conv(r, w2) s = Sigmoid(b) y = Mul(x, s)"""
    assert gates(body) == {"Conv_1", "Relu_2", "Conv_3", "Sigmoid_4"}


def test_a_gate_with_a_decomposed_activation_that_reads_a_value_twice():
    body = """p = ReduceMean<axes=[2,3]>(x) a = Conv(p, w1) t = Sigmoid(a) m = Mul(a, t)
    b = Conv(m, w2) c = Add(b, three) d = Clip(c) s = Div(d, six) y = Mul(s, x)"""
    assert gates(body) == {"Conv_1", "Sigmoid_2", "Mul_3", "Conv_4", "Clip_6", "Div_7"}  # Add_5 is folded


@pytest.mark.parametrize(
    "body",
    [
        "a = Conv(x, w1) b = Conv(a, w2) s = Sigmoid(b) y = Mul(x, s)",
        "r = Relu(x) p = GlobalAveragePool(r) a = Conv(p, w1) b = Conv(a, w2) y = Mul(x, b)",
        "y = Mul(x, three)",
        "s = Sigmoid(x) y = Mul(x, s)",
    ],
    ids=["no pool", "the pool reads another map", "a constant factor", "swish"],
)
def test_what_is_no_gate(body: str):
    assert gates(body) == set()
