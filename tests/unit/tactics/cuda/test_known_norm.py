# SPDX-License-Identifier: Apache-2.0
"""Norms are known by their values, in every spelling; what is none is not taken for one."""

import numpy as np
import pytest

pytest.importorskip("torch")
from quantrt.regions.partition import partition
from quantrt.regions.region import Rows
from quantrt.tactics.cuda.known_norm import norm_of
from tests.nets import net, weights

C = 48

SPELLINGS = {
    "LayerNormalization": "y = LayerNormalization<axis = -1, epsilon = 1e-6>(x, g, b)",
    "in nodes": (
        "mean = ReduceMean<axes = [-1]>(x) less = Sub(x, mean) square = Mul(less, less)"
        " variance = ReduceMean<axes = [-1]>(square) more = Add(variance, eps) root = Sqrt(more)"
        " unit = Div(less, root) scaled = Mul(unit, g) y = Add(scaled, b)"
    ),
}
RMS = (
    "square = Mul(x, x) mean = ReduceMean<axes = [-1]>(square) more = Add(mean, eps) root = Sqrt(more)"
    " inverse = Reciprocal(root) unit = Mul(x, inverse) y = Mul(unit, g)"
)
OTHERS = {
    "softmax": "y = Softmax<axis = -1>(x)",
    "another sign": "n = LayerNormalization<axis = -1>(x, g, b) y = Neg(n)",
    "a sum": "n = LayerNormalization<axis = -1>(x, g, b) y = Add(n, x)",
    "a mean": "mean = ReduceMean<axes = [-1]>(x) y = Sub(x, mean)",
    "a sum of squares": (
        "square = Mul(x, x) sum = ReduceSum<keepdims = 1>(square, last) more = Add(sum, eps)"
        " root = Sqrt(more) y = Div(x, root)"
    ),
}


def known(body):
    """What the only region of a model is known as, and its constants."""
    constants = weights({"g": (C,), "b": (C,)}) | {"eps": np.float32(1e-6), "last": np.array([-1])}
    text = f"norm (float[N,{C}] x) => (float[N,{C}] y) {{ {body} }}"
    model = net(text, {name: array for name, array in constants.items() if name in body}, opset=17)
    (region,) = partition(model.graph).regions
    assert isinstance(region.formula, Rows)
    expression = region.formula.expression
    used = {x.name: constants[x.name] for x in expression.operands if x.kind == "constant"}
    return norm_of(expression, used, C), constants


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_layer_norms(spelling):
    norm, constants = known(SPELLINGS[spelling])
    assert norm.is_centred and norm.epsilon == pytest.approx(1e-6)
    np.testing.assert_array_equal(norm.scale, constants["g"])
    np.testing.assert_array_equal(norm.shift, constants["b"])


def test_rms_norms():
    norm, constants = known(RMS)
    assert not norm.is_centred and norm.epsilon == pytest.approx(1e-6) and norm.shift is None
    np.testing.assert_array_equal(norm.scale, constants["g"])


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_norm(other):
    assert known(OTHERS[other])[0] is None
