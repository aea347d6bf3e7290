# SPDX-License-Identifier: Apache-2.0
"""What float16 cannot hold is stored as float32, so that an engine of halves has no infinities of its own."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.model.for_gpu import for_gpu  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.program import Program  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.tactics.cuda.wide import HEADROOM_RATIO  # noqa: E402
from tests.nets import net, run_ort, samples, weights  # noqa: E402
from tests.unit.tactics.cuda.test_lower import lowering, run  # noqa: E402

# Softmax-free attention: relu(q) (relu(k)^T v) / relu(q) sum(relu(k)), whose numerator grows with the tokens.
LINEAR = """linear (float[N,S,16] x) => (float[N,S,16] y) {
  q0 = MatMul(x, w_q)
  q = Relu(q0)
  k0 = MatMul(x, w_k)
  k = Relu(k0)
  kt = Transpose<perm=[0,2,1]>(k)
  kv = MatMul(kt, x)
  top = MatMul(q, kv)
  ks = ReduceSum<keepdims=1>(k, tokens)
  both = Mul(q, ks)
  bottom0 = ReduceSum<keepdims=1>(both, channels)
  bottom = Add(bottom0, one)
  y = Div(top, bottom)
}"""


WEIGHTS = {
    **weights({"w_q": (16, 16), "w_k": (16, 16)}),
    "one": np.ones(1, np.float32),
    "tokens": np.array([1], np.int64),
    "channels": np.array([2], np.int64),
}


def linear_attention() -> Model:
    return for_gpu(net(LINEAR, WEIGHTS, opset=17))


def program_of(model: Model, inputs: dict[str, np.ndarray], precision: str) -> Program:
    return program_from_model(lowering(model, inputs).lower(None, precision)[0])


def test_sums_beyond_float16_stay_finite():
    model = linear_attention()
    inputs = {"x": 12 * samples(2, 64, 16)}
    (want,) = run_ort(model.graph, inputs)
    (top,) = run_ort(net(LINEAR.replace("[N,S,16] y", "[N,S,16] top"), WEIGHTS, opset=17).graph, inputs)
    assert np.abs(top).max() > 65504
    program = program_of(model, inputs, "fp16")
    got = run(model, program, inputs)
    assert np.isfinite(got).all()
    assert sqnr_db(want, got) > 40
    assert any("stored in FP32" in note and "top" in note for note in program.notes["tuning"])


def test_small_values_stay_halves():
    model = linear_attention()
    inputs = {"x": samples(2, 8, 16) / HEADROOM_RATIO}
    program = program_of(model, inputs, "fp16")
    assert not any("stored in FP32" in note for note in program.notes["tuning"])


def test_what_is_never_positive_is_a_mask():
    text = """masked (float[N,S,16] x, float[N,S,16] m) => (float[N,S,16] y) {
      far = Mul(m, many)
      y0 = Add(x, far)
      y = Softmax<axis=-1>(y0)
    }"""
    model = for_gpu(net(text, {"many": np.full(1, -1e4, np.float32)}, opset=17))
    keeps = (samples(2, 4, 16) > 0).astype(np.float32)
    program = program_of(model, {"x": samples(2, 4, 16), "m": keeps}, "fp16")
    assert not any("stored in FP32" in note for note in program.notes["tuning"])
