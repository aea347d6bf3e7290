# SPDX-License-Identifier: Apache-2.0
"""What float16 cannot hold is stored as float32, so that an engine of halves has no infinities of its own."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.model.for_gpu import for_gpu  # noqa: E402
from quantrt.model.model import Model  # noqa: E402
from quantrt.plan.cudnn_plan import CudnnGraph  # noqa: E402
from quantrt.plan.program import Program  # noqa: E402
from quantrt.plan.program_json import program_from_model  # noqa: E402
from quantrt.reference.metrics import sqnr_db  # noqa: E402
from quantrt.tactics.cuda.program.wide import HEADROOM_RATIO, without_half_sums  # noqa: E402
from quantrt.tactics.cuda.tactic import Draft, Rejected, Tactic  # noqa: E402
from tests.nets import net, run_ort, samples, weights  # noqa: E402
from tests.unit.tactics.cuda.test_lower import GATED, gated, lowering, run  # noqa: E402

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


BENT = """bent (float[N,8,6,6] x) => (float[N,8,6,6] y) {
  c = Conv(x, w, b)
  y = HardSwish(c)
}"""


def test_sums_beyond_float16_are_left_to_kernels_that_keep_them():
    """The sums are far below zero, and what is stored of them is zero."""
    arrays = {
        "w": np.full((8, 8, 1, 1), 100.0, np.float32),
        "b": np.full(8, 3.0, np.float32),
    }
    model = for_gpu(net(BENT, arrays, opset=17))
    inputs = {"x": -200.0 * np.ones((2, 8, 6, 6), np.float32)}
    program = program_of(model, inputs, "fp16")
    (want,) = run_ort(model.graph, inputs)
    np.testing.assert_array_equal(run(model, program, inputs), want)
    notes = program.notes["tuning"]
    assert any("no library" in note and "Conv" in note for note in notes), notes
    assert not any("stored in FP32" in note for note in notes)
    reasons = [reason for table in program.notes["candidates"].values() for _, _, reason in table]
    assert any("stores sums in float16" in reason for reason in reasons)


@pytest.mark.parametrize("half", ["w_gate", "w_up"])
def test_sums_of_both_halves_of_a_gate_are_seen(half: str):
    shapes = {"g": (16,), "b": (16,), "w_gate": (16, 40), "w_up": (16, 40), "b_up": (40,), "w_down": (40, 16)}
    arrays = weights(shapes)
    model = for_gpu(net(GATED, {**arrays, half: 1e5 * arrays[half]}, opset=20))
    notes = program_of(model, {"x": samples(2, 7, 16)}, "fp16").notes["tuning"]
    assert any("no library" in note for note in notes), notes
    notes = program_of(gated(), {"x": samples(2, 7, 16)}, "fp16").notes["tuning"]
    assert not any("no library" in note for note in notes), notes


GRAPH = CudnnGraph((2, 8, 6, 6), (8, 8, 1, 1), "float16", (1, 1), (1, 1), (0, 0, 0, 0), (), (), ())


def test_a_graph_of_cudnn_keeps_its_sums():
    plain, graph = (
        Tactic("cudnn", name, (Draft("convolution", ("in0",), ("out0",), graphs=graphs),))
        for name, graphs in (("convolution", ()), ("graph", (GRAPH,)))
    )
    own = Tactic("triton", "conv2d", (Draft("conv2d", ("in0",), ("out0",)),))
    left = without_half_sums([own, plain, graph])
    assert [type(row) for row in left] == [Tactic, Rejected, Tactic]
