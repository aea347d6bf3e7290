# SPDX-License-Identifier: Apache-2.0
import pytest

from quantrt.quantize.attention import attention_products
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
