# SPDX-License-Identifier: Apache-2.0
"""Codes of 4 bits: GPTQ and AWQ bring products nearer than nearest codes do."""

import numpy as np
import pytest

from quantrt.quantize.algorithms.awq import choose_awq
from quantrt.quantize.algorithms.gptq import round_by_gptq
from quantrt.quantize.algorithms.group_rounding import QMAX, QMIN, choose_scales, round_nearest
from quantrt.quantize.algorithms.smoothing import smooth
from tests.nets import net, run_ort, samples, weights

SIZES = pytest.mark.parametrize("group_size", [32, 64, 128])


def correlated(rows: int, inputs: int, rng: np.random.Generator) -> np.ndarray:
    """Activations of a few directions and a little of everything, as in trained networks."""
    mixed = rng.normal(size=(rows, 16)) @ rng.normal(size=(16, inputs))
    return (mixed + 0.2 * rng.normal(size=(rows, inputs))).astype(np.float32)


def product_error(x: np.ndarray, weight: np.ndarray, values: np.ndarray) -> float:
    return float(np.square(x @ values - x @ weight).sum())


@SIZES
@pytest.mark.parametrize("inputs", [128, 200])
def test_products_of_gptq_are_nearer_than_those_of_nearest_codes(group_size: int, inputs: int, rng):
    x, weight = correlated(500, inputs, rng), rng.normal(size=(inputs, 24)).astype(np.float32)
    nearest = round_nearest(weight, group_size=group_size)
    gptq = round_by_gptq(weight, x.T @ x, group_size=group_size)
    assert product_error(x, weight, gptq.dequantize()) < product_error(x, weight, nearest.dequantize()) / 3
    for made in (nearest, gptq):
        assert made.codes.min() >= QMIN and made.codes.max() <= QMAX
        assert made.scales.shape == (-(-inputs // group_size), 24)
        assert np.square(made.dequantize() - weight).mean() < 0.05


def test_inputs_that_are_always_zero_or_alike_are_rounded_too(rng):
    x, weight = correlated(64, 64, rng), rng.normal(size=(64, 8)).astype(np.float32)
    x[:, :5] = 0
    x[:, 6] = x[:, 7]
    made = round_by_gptq(weight, x.T @ x, group_size=32)
    assert np.isfinite(made.dequantize()).all()
    still = round_by_gptq(weight, np.zeros((64, 64)), group_size=32)
    np.testing.assert_allclose(
        still.dequantize(), round_nearest(weight, group_size=32).dequantize(), atol=1e-5
    )


def test_groups_that_cross_blocks_are_refused(rng):
    with pytest.raises(ValueError, match="48"):
        round_by_gptq(rng.normal(size=(96, 2)), np.eye(96), group_size=48)


def test_a_scale_gives_the_largest_the_lowest_code_and_zeros_a_scale():
    weights_of = np.array([[7.9, -7.9, 0.0], [1.0, 1.0, 0.0], [-4.0, 4.0, 0.0]], np.float32)
    scales = choose_scales(weights_of)
    np.testing.assert_allclose(np.abs(scales[:2]), 7.9 / 8, rtol=0.15)
    assert scales[2] == 1.0
    positive = choose_scales(weights_of, is_positive=True)
    np.testing.assert_allclose(positive[:2], 7.9 / 7.5, rtol=0.15)
    assert positive[2] == 1.0


def test_awq_scales_up_what_large_activations_meet(rng):
    arrays = weights({"w": (64, 48), "gamma": (64,), "beta": (64,)})
    arrays["gamma"] = np.where(np.arange(64) % 16 == 3, 30, 1).astype(np.float32)
    arrays["beta"] *= 0
    model = net(
        "net (float[N,64] x) => (float[N,48] y) "
        "{ n = LayerNormalization<axis=-1>(x, gamma, beta) y = MatMul(n, w) }",
        arrays,
    )
    x = {"x": samples(64, 64)}
    found = choose_awq(model.graph, [x], group_size=32)
    (scale,) = found.folded.values()
    assert scale[3::16].min() > 1.5 * np.delete(scale, np.s_[3::16]).max()
    graph = smooth(model.graph, found)
    (want,), (got,) = run_ort(model.graph, x), run_ort(graph, x)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
