# SPDX-License-Identifier: Apache-2.0
"""Switched graphs: with all switches on they are the fake-quantized model, bit for bit."""

import numpy as np

from quantrt.ir.session import float_session
from quantrt.quantize.qdq.switches import FLAGS, switch_layers
from tests.plans import make_graph

FLOATS = """floats (float[2,6] x) => (float[6,2] y)
<int64[2] shape = {6, 4}>
{ twice = Concat<axis=1>(x, x)
  [move] rows = Reshape(twice, shape)
  [product] y = MatMul(rows, w) }"""

FAKE = """fake (float[2,6] x) => (float[6,2] y)
<int64[2] shape = {6, 4}, float fine = {0.03}, float coarse = {0.1}, int8 zero = {0}, float one = {0.02}>
{ codes = QuantizeLinear(x, fine, zero)
  rounded = DequantizeLinear(codes, fine, zero)
  twice = Concat<axis=1>(rounded, x)
  [move] rows = Reshape(twice, shape)
  [q] again = QuantizeLinear(rows, coarse, zero)
  [dq] twice_rounded = DequantizeLinear(again, coarse, zero)
  weight = DequantizeLinear(w_codes, one, zero)
  [product] y = MatMul(twice_rounded, weight) }"""


def test_what_is_rounded_moved_and_rounded_again_is_rounded_twice(rng: np.random.Generator):
    codes = rng.integers(-100, 100, (4, 2)).astype(np.int8)
    fake = make_graph(FAKE, {"w_codes": codes})
    floats = make_graph(FLOATS, {"w": rng.normal(size=(4, 2)).astype(np.float32)})
    switched = switch_layers(fake, floats)
    x = rng.normal(size=(2, 6)).astype(np.float32)
    (wanted,) = float_session(fake, optimize=False).run(None, {"x": x})
    session = float_session(switched.graph, optimize=False)
    every = range(len(switched.layers))
    (got,) = session.run(None, {"x": x, FLAGS: switched.flags(*every)})
    np.testing.assert_array_equal(got, wanted)
    (as_floats,) = session.run(None, {"x": x, FLAGS: switched.flags()})
    (plain,) = float_session(floats, optimize=False).run(None, {"x": x})
    np.testing.assert_array_equal(as_floats, plain)
