# SPDX-License-Identifier: Apache-2.0
"""Fused norms compute what ONNX Runtime's own operators do."""

import numpy as np
import pytest

from tests.unit.model.check_pass import run
from tests.unit.model.contrib.spelling import M, check, floats, graph_of, reason_of, spelled


@pytest.mark.parametrize(
    ("body", "skip"),
    [
        (f"y = {M}.SkipLayerNormalization(x, s, g)", (2, 5, 24)),
        (f"y = {M}.SkipLayerNormalization<epsilon=0.01>(x, s, g, b, c)", (2, 5, 24)),
        (f"y, , , y1 = {M}.SkipLayerNormalization(x, s, g, b, c)", (2, 5, 24)),
        (f"y, , , y1 = {M}.SkipLayerNormalization(x, s, g, , c)", (1, 5, 24)),
        (f"y = {M}.SkipLayerNormalization(x, s, g, b)", (5, 24)),
        (f"y = {M}.SkipSimplifiedLayerNormalization(x, s, g)", (2, 5, 24)),
        (f"y, , , y1 = {M}.SkipSimplifiedLayerNormalization<epsilon=0.01>(x, s, g, c)", (2, 5, 24)),
        ("y = SimplifiedLayerNormalization<axis=-1, epsilon=0.01>(x, g) y1 = Add(y, s)", (2, 5, 24)),
        ("y = SimplifiedLayerNormalization<axis=2>(x, g) y1 = Add(y, s)", (2, 5, 24)),
    ],
)
@pytest.mark.parametrize("opset", [13, 17, 18])
def test_skip_norms(body: str, skip: tuple[int, ...], opset: int, rng):
    weights = {name: floats(rng, 24) for name in "gbc"}
    check(body, {"x": floats(rng, 2, 5, 24), "s": floats(rng, *skip)}, weights, opset=opset)


def test_a_skip_norm_of_tokens_without_a_batch(rng):
    body = f"y = {M}.SkipLayerNormalization(x, s, g, b)"
    weights = {name: floats(rng, 8) for name in "gb"}
    check(body, {"x": floats(rng, 7, 8), "s": floats(rng, 7, 8)}, weights)


@pytest.mark.parametrize("is_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norms(is_last: int, activation: int, rng):
    """ONNX Runtime has kernels for GPUs alone: held against the formula in float64."""
    x, skip = floats(rng, 2, 6, 5, 3), floats(rng, 2, 6)
    gamma, beta, bias = floats(rng, 6), floats(rng, 6), floats(rng, 6)
    total = x + skip[:, :, None, None] + bias[:, None, None]
    wide = total.astype(np.float64).reshape(2, 3, -1)
    normed = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-3)
    want = normed.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]
    want = want / (1 + np.exp(-want)) if activation else want
    order = (0, 2, 3, 1) if is_last else (0, 1, 2, 3)
    given = np.ascontiguousarray(x.transpose(order))
    body = (
        f"y, y1 = {M}.SkipGroupNorm<groups=3, epsilon=0.001, activation={activation}, "
        f"channels_last={is_last}>(x, g, b, s, c)"
    )
    graph = graph_of(body, {"x": given, "s": skip}, {"g": gamma, "b": beta, "c": bias})
    got, summed = run(spelled(graph), {"x": given, "s": skip})
    np.testing.assert_allclose(got, want.transpose(order), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(summed, total.transpose(order), rtol=1e-6)


def test_what_stays(rng):
    x = floats(rng, 2, 3, 4)
    body = f"y, y1 = {M}.SkipLayerNormalization(x, x, g)"
    assert "its mean or its deviation is used" in reason_of(body, {"x": x}, {"g": floats(rng, 4)})
