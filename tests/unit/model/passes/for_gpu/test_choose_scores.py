# SPDX-License-Identifier: Apache-2.0
"""Masks by query put a number in the place of scores; what is no such mask is added as before."""

from contextlib import closing

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.config import CudaConfig
from quantrt.gpu import gpu_named
from quantrt.model.for_gpu import for_gpu
from quantrt.model.passes.for_gpu.choose_scores import choose_scores
from tests.nets import net
from tests.unit.model.check_pass import model_of, op_types, run

B, H, S = 2, 3, 5
LOWEST = float(np.finfo(np.float32).min)
SCORES = f"float[{B},{H},{S},{S}] x"
BY_QUERY = f"bool[{B},1,{S},{S}] m"


def made(body, *, mask=BY_QUERY, low=LOWEST, outputs="float[...] y"):
    weights = {"zero": np.float32(0.0), "low": np.float32(low)}
    model = model_of(body, inputs=f"{mask}, {SCORES}", outputs=outputs, weights=weights)
    return ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(model), data_prop=True))


def rewritten(model, rng, *, changes):
    """The graph after the pass, which changes no output by a bit; sample 1 has a query that sees no key."""
    shape = tuple(model.graph.inputs[0].shape.numpy())
    is_seen = rng.random(shape) < 0.5
    is_seen[1, :, 0] = False
    feeds = {"m": is_seen, "x": 40.0 * rng.standard_normal((B, H, S, S)).astype(np.float32)}
    want = run(model, feeds)
    assert choose_scores(model) == changes
    for one, other in zip(run(model, feeds), want, strict=True):
        np.testing.assert_array_equal(one, other)
    return model


MASKED = {
    "kept": "part = Where(m, zero, low) s = Add(x, part) y = Softmax<axis = -1>(s)",
    "dropped": "part = Where(m, low, zero) s = Add(part, x) y = Softmax<axis = -1>(s)",
}


@pytest.mark.parametrize("case", MASKED)
@pytest.mark.parametrize("low", [LOWEST, -1e30])
def test_a_mask_by_query_chooses(case, low, rng):
    graph = rewritten(made(MASKED[case], low=low), rng, changes=1)
    assert op_types(graph) == ["Where", "Softmax"]


def test_every_layer_that_reads_one_mask_chooses(rng):
    body = (
        "part = Where(m, zero, low) s = Add(x, part) a = Softmax<axis = -1>(s)"
        " t = Add(a, part) b = Softmax<axis = -1>(t) y = Add(a, b)"
    )
    assert op_types(rewritten(made(body), rng, changes=2)).count("Where") == 2


@pytest.mark.parametrize("low", [-1e9, float("-inf")])
def test_numbers_that_scores_show_beside_and_minus_infinity_are_added(low):
    model = made(MASKED["kept"], low=low)
    assert choose_scores(model) == 0


@pytest.mark.parametrize(
    "body",
    [
        "part = Where(m, zero, low) s = Add(x, part) y = Mul(s, x)",
        "part = Where(m, low, low) s = Add(x, part) y = Softmax<axis = -1>(s)",
        "part = Where(m, x, low) s = Add(x, part) y = Softmax<axis = -1>(s)",
        "part = Where(m, zero, low) s = Sub(x, part) y = Softmax<axis = -1>(s)",
    ],
)
def test_what_is_no_mask_of_scores_stays(body):
    assert choose_scores(made(body)) == 0


def test_a_mask_for_all_queries_stays(rng):
    rewritten(made(MASKED["kept"], mask=f"bool[{B},1,1,{S}] m"), rng, changes=0)


def test_scores_that_something_else_reads_stay(rng):
    rewritten(made(MASKED["kept"], outputs="float[...] y, float[...] s"), rng, changes=0)


BLIND = """attends (float[2,2,6,8] q, float[2,2,8,6] k, float[2,2,6,8] v, bool[2,1,6,6] m)
  => (float[2,2,6,8] y) <float zero = {0.0}> {
  a = MatMul(q, k) part = Where(m, zero, low) s = Add(a, part) p = Softmax<axis=-1>(s) y = MatMul(p, v) }"""


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_query_that_sees_no_key_attends_to_all_alike_on_a_gpu(precision, rng):
    pytest.importorskip("torch", reason="programs run in torch")
    from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
    from quantrt.tactics.cuda.lower import CudaLowering

    model = net(BLIND, {"low": np.float32(LOWEST)})
    shapes = {"q": (2, 2, 6, 8), "k": (2, 2, 8, 6), "v": (2, 2, 6, 8)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["m"] = np.tri(6, dtype=bool) & (np.arange(6) != 0) & (np.arange(2) < 2)[:, None, None, None]
    lowering = CudaLowering(for_gpu(model), CudaConfig(), feeds, gpu=gpu_named("H200"), device=None)
    with closing(lowering):
        program = lowering.reference(None, precision)
    with closing(CudaExecutor(program, *specs_of(program), device="cpu")) as executor:
        y = executor.run(feeds)["y"]
    # Query 0 sees no key; float16 has 11 bits.
    np.testing.assert_allclose(y[:, :, 0], feeds["v"].mean(2), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(y, run(ir.to_proto(model.graph), feeds)[0], rtol=1e-2, atol=5e-3)
