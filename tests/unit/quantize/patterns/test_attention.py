# SPDX-License-Identifier: Apache-2.0
import numpy as np
import onnx_ir as ir
import pytest

from quantrt.quantize.patterns.attention import attention_products, transposed_attention
from quantrt.quantize.placement.placement import place
from quantrt.quantize.targets import OPENVINO
from tests.nets import net, samples

INPUTS = "float[N,2,4,8] q, float[N,2,8,4] k, float[N,2,4,8] v"


def products(body: str, **constants: object) -> set[str]:
    text = f"net ({INPUTS}) => (float[N,2,4,8] y) {{ {body} }}"
    return set(attention_products(net(text, constants).graph.graph))


@pytest.mark.parametrize(
    "between",
    [
        "s = Identity(m)",
        "s = Mul(m, c)",
        "t = Div(m, c) s = Add(t, c)",
        "t = Transpose<perm=[0,1,2,3]>(m) s = Mul(t, c)",
    ],
)
def test_both_products_around_a_softmax(between: str):
    body = f"m = MatMul(q, k) {between} p = Softmax(s) y = MatMul(p, v)"
    constants = {"c": samples(1)} if "c)" in between else {}
    found = products(body, **constants)
    assert len(found) == 2 and "MatMul_0" in found


def test_products_without_a_softmax_are_none():
    assert products("m = MatMul(q, k) r = Relu(m) y = MatMul(r, v)") == set()


def test_a_product_behind_a_normalization_belongs_to_no_softmax():
    body = """m = MatMul(q, k) p = Softmax(m) o = MatMul(p, v) e = ReduceMean<axes=[3]>(o) n = Sub(o, e)
    h = MatMul(n, k) y = MatMul(h, v)"""
    assert products(body) == {"MatMul_0", "MatMul_2"}


def test_a_long_way_back_is_given_up():
    chain = " ".join(f"a{i + 1} = Add(a{i}, a{i})" for i in range(20))
    body = f"a0 = Identity(q) {chain} p = Softmax(a20) m = MatMul(p, k) y = MatMul(m, v)"
    assert len(products(body)) == 1


def moved(size: int, moves: str) -> ir.Model:
    """Attention of two heads, whose output `o` is moved to the rows `r` of a product."""
    inputs = f"float[N,2,4,{size}] q, float[N,2,{size},4] k, float[N,2,4,{size}] v"
    text = f"""net ({inputs}) => (float[N,4,6] y) {{
      m = MatMul(q, k)
      p = Softmax(m)
      o = MatMul(p, v)
      {moves}
      y = MatMul(r, w)
    }}"""
    return net(text, {"w": samples(2 * size, 6), "sizes": np.array([0, 4, 2 * size])}).graph


@pytest.mark.parametrize(
    ("size", "in_codes"),
    [(32, "r"), (96, "r"), (64, "o")],
    ids=["half a vector", "one and a half", "a vector"],
)
def test_rows_that_are_no_whole_vectors_are_transposed_as_floats(size: int, in_codes: str):
    placement = place(moved(size, "t = Transpose<perm=[0,2,1,3]>(o) r = Reshape(t, sizes)"), OPENVINO)
    assert {"o", "t", "r"} & placement.values == {in_codes}


def test_what_is_not_transposed_is_reshaped_as_codes():
    assert {"o", "r"} & place(moved(32, "r = Reshape(o, sizes)"), OPENVINO).values == {"o"}


@pytest.mark.parametrize(
    ("moves", "name"),
    [
        ("t = Transpose<perm=[0,2,1,3]>(o) r = Reshape(t, sizes)", "o"),
        ("r = Reshape(o, sizes)", None),
        ("e = Relu(o) t = Transpose<perm=[0,2,1,3]>(e) r = Reshape(t, sizes)", None),
        ("t = Transpose<perm=[0,2,1,3]>(q) r = Reshape(t, sizes)", None),
    ],
    ids=["transposed", "reshaped", "computed between", "no output of attention"],
)
def test_what_is_transposed_of_attention(moves: str, name: str | None):
    graph = moved(32, moves).graph
    rows = next(node for node in graph if node.op_type == "Reshape")
    found = transposed_attention(rows, attention_products(graph))
    assert (None if found is None else found.name) == name
