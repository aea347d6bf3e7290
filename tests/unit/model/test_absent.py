# SPDX-License-Identifier: Apache-2.0
"""Tensors of a file that its canonical graph has no more, and who has their values."""

from quantrt.model.for_gpu import for_gpu
from tests.nets import net, weights

NORM = {"scale": (4,), "shift": (4,), "mean": (4,), "var": (4,)}


def arrays(**shapes: tuple[int, ...]) -> dict:
    made = weights({**NORM, **shapes})
    made["var"] = abs(made["var"]) + 1
    return made


def test_an_identity_has_the_values_of_its_input():
    model = net("net (float[1,4] x) => (float[1,4] y) { a = Relu(x) b = Identity(a) y = Sigmoid(b) }")
    assert model.absent == {"b": "a"}


def test_an_identity_before_an_output_hands_the_name_over():
    model = net("net (float[1,4] x) => (float[1,4] y) { a = Relu(x) b = Identity(a) y = Identity(b) }")
    assert model.absent == {"a": "y", "b": "y"}


def test_what_a_normalization_was_folded_into_has_other_values():
    text = """net (float[1,4,8,8] x) => (float[1,4,8,8] y) {
      c = Conv(x, w)  d = Identity(c)  n = BatchNormalization(d, scale, shift, mean, var)  e = Identity(n)
      y = Relu(e) }"""
    model = net(text, arrays(w=(4, 4, 1, 1)))
    assert [node.op_type for node in model.graph.graph] == ["Conv", "Relu"]
    assert {name: model.absent[name] for name in ("c", "d", "e")} == {"c": None, "d": None, "e": "n"}


def test_constants_are_absent_without_a_successor():
    model = net("net (float[1,4] x) => (float[1,4] y) { k = Constant<value_float=2.0>() y = Mul(x, k) }")
    assert model.absent == {}, "a Constant became an initializer of its name"
    folded = net(
        """net (float[1,4] x) => (float[1,4] y)
        { k = Constant<value_floats=[4.0]>() s = Sqrt(k) y = Mul(x, s) }"""
    )
    assert folded.absent == {"k": None}


def test_what_a_gpu_s_form_merges_is_absent_there():
    text = """net (float[1,4,8] x) => (float[1,4,8] a, float[1,4,8] b) {
      p = MatMul(x, v)  q = Add(p, c)  s = MatMul(x, w)  t = Add(s, c)
      a = Transpose<perm=[0,1,2]>(q)  b = Transpose<perm=[0,1,2]>(t) }"""
    model = net(text, weights({"v": (8, 8), "w": (8, 8), "c": (8,)}))
    merged = for_gpu(model)
    assert model.absent == {}
    assert {"p", "s"} <= set(merged.absent)
    assert merged.absent["p"] is merged.absent["s"] is None
    assert "q" not in merged.absent, "results keep their names"
