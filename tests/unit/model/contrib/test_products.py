# SPDX-License-Identifier: Apache-2.0
"""Fused products compute what ONNX Runtime's own operators do."""

import numpy as np
import pytest

from tests.unit.model.check_pass import run
from tests.unit.model.contrib.spelling import M, check, floats, graph_of, reason_of, spelled


@pytest.mark.parametrize(
    ("attributes", "a", "b"),
    [
        ("alpha=0.125", (3, 5), (5, 7)),
        ("transA=1", (5, 3), (5, 7)),
        ("transB=1, alpha=-2.0", (2, 4, 3, 5), (2, 4, 7, 5)),
        ("transA=1, transB=1", (2, 5, 3), (2, 7, 5)),
        ("transBatchA=1, transBatchB=1", (3, 2, 5), (5, 2, 7)),
        ("transBatchA=1, transA=1", (5, 2, 3), (2, 5, 7)),
        ("transBatchB=1, transB=1", (2, 3, 5), (7, 2, 5)),
    ],
)
@pytest.mark.parametrize("is_constant", [False, True])
def test_products(attributes: str, a: tuple[int, ...], b: tuple[int, ...], is_constant: bool, rng):
    x, w = floats(rng, *a), floats(rng, *b)
    inputs, weights = ({"x": x}, {"w": w}) if is_constant else ({"x": x, "w": w}, {})
    check(f"y = {M}.FusedMatMul<{attributes}>(x, w)", inputs, weights)


@pytest.mark.parametrize("zero", [0, 11])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_of_codes(zero: int, has_bias: bool, rng):
    weights = {
        "w": rng.integers(-100, 100, (12, 7)).astype(np.int8),
        "s": rng.uniform(0.001, 0.01, 7).astype(np.float32),
        "z": np.full(7, zero, np.int8),
        "b": floats(rng, 7),
    }
    ending = ", b" if has_bias else ""
    check(f"y = {M}.DynamicQuantizeMatMul(x, w, s, z{ending})", {"x": floats(rng, 2, 5, 12)}, weights)
    weights |= {"sa": np.asarray(0.02, np.float32), "za": np.asarray(130, np.uint8)}
    codes = {"x": rng.integers(0, 256, (2, 5, 12)).astype(np.uint8)}
    check(f"y = {M}.MatMulIntegerToFloat(x, w, sa, s, za, z{ending})", codes, weights)


def test_what_runs_on_gpus_alone(rng):
    """ONNX Runtime has no kernel of these for a CPU: held against what they stand for."""
    x, w, b = floats(rng, 2, 4, 6, 5), floats(rng, 3, 2, 3, 3), floats(rng, 3)
    w = floats(rng, 6, 2, 3, 3)
    b = floats(rng, 6)
    plain = graph_of("y = Conv<group=2, pads=[1,0,1,0], strides=[2,1]>(x, w, b)", {"x": x}, {"w": w, "b": b})
    last = {"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1))}
    body = f"y = {M}.NhwcConv<group=2, pads=[1,0,1,0], strides=[2,1]>(x, w, b)"
    nhwc = graph_of(body, last, {"w": np.ascontiguousarray(w.transpose(0, 2, 3, 1)), "b": b})
    want = run(plain, {"x": x})[0].transpose(0, 2, 3, 1)
    np.testing.assert_allclose(run(spelled(nhwc), last)[0], want, rtol=1e-5, atol=1e-5)
    scores, bias = floats(rng, 2, 3, 4, 5), floats(rng, 2, 1, 1, 5)
    given = {"x": scores, "b": bias}
    masked = graph_of(f"y = {M}.BiasSoftmax<axis=3, is_inner_broadcast=1>(x, b)", given, {})
    power = np.exp(scores + bias)
    np.testing.assert_allclose(
        run(spelled(masked), given)[0], power / power.sum(-1, keepdims=True), rtol=1e-5
    )


def test_what_stays(rng):
    scores = {"x": floats(rng, 2, 3, 4)}
    body = f"y = {M}.BiasSoftmax<axis=1, is_inner_broadcast=0>(x, x)"
    assert reason_of(body, scores) == "its axis is 1, not the last"
