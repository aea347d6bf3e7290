# SPDX-License-Identifier: Apache-2.0
"""Fused activations compute what ONNX Runtime's own operators do."""

import numpy as np
import pytest

from tests.unit.model.check_pass import run
from tests.unit.model.contrib.spelling import M, check, floats, graph_of, reason_of, spelled


@pytest.mark.parametrize(
    "body",
    [
        f"y = {M}.Gelu(x)",
        f"y = {M}.FastGelu(x)",
        f"y = {M}.FastGelu(x, b)",
        f"y = {M}.BiasGelu(x, b)",
        f"y = {M}.QuickGelu(x)",
        f"y = {M}.QuickGelu<alpha=1.0>(x)",
        f"y = {M}.QuickGelu<alpha=-0.7>(x)",
    ],
)
@pytest.mark.parametrize("shape", [(2, 3, 7), (1, 41)])
def test_activations(body: str, shape: tuple[int, ...], rng):
    # ONNX Runtime computes tanh and erf by polynomials of its own.
    check(body, {"x": 3 * floats(rng, *shape)}, {"b": floats(rng, shape[-1])}, most=4e-6)


@pytest.mark.parametrize(
    ("activation", "numbers"),
    [
        ("Relu", ""),
        ("Sigmoid", ""),
        ("Tanh", ""),
        ("LeakyRelu", ", activation_params=[0.2]"),
        ("Clip", ", activation_params=[-0.5, 0.5]"),
        ("HardSigmoid", ", activation_params=[0.3, 0.4]"),
    ],
)
def test_activations_behind_a_convolution(activation: str, numbers: str, rng):
    body = f'y = {M}.FusedConv<activation="{activation}", pads=[1,1,0,0], group=2{numbers}>(x, w, b, z)'
    x, z = floats(rng, 2, 4, 7, 5), floats(rng, 2, 6, 6, 4)
    check(body, {"x": x, "z": z}, {"w": floats(rng, 6, 2, 3, 3), "b": floats(rng, 6)})


@pytest.mark.parametrize(
    "attributes",
    [
        'activation="Relu", alpha=0.5, transB=1',
        'activation="LeakyRelu", activation_alpha=0.1, beta=2.0, transB=1',
        'activation="HardSigmoid", activation_alpha=0.1, activation_beta=0.4, transB=1',
    ],
)
def test_activations_behind_a_gemm(attributes: str, rng):
    weights = {"w": floats(rng, 5, 8), "b": floats(rng, 5)}
    check(f"y = {M}.FusedGemm<{attributes}>(x, w, b)", {"x": floats(rng, 3, 8)}, weights)


def test_what_runs_on_gpus_alone(rng):
    """ONNX Runtime has no kernel of these for a CPU: held against their formulas."""
    x, b, skip = floats(rng, 2, 3, 8), floats(rng, 8), floats(rng, 2, 3, 8)
    right = np.ascontiguousarray((x + b)[..., 4:])
    gelu = run(graph_of(f"y = {M}.Gelu(x)", {"x": right}, {}), {"x": right})[0]
    split = graph_of(f"y = {M}.BiasSplitGelu(x, b)", {"x": x}, {"b": b})
    np.testing.assert_allclose(
        run(spelled(split), {"x": x})[0], (x + b)[..., :4] * gelu, rtol=1e-5, atol=1e-6
    )
    added = graph_of(f"y = {M}.BiasAdd(x, b, s)", {"x": x, "s": skip}, {"b": b})
    np.testing.assert_array_equal(run(spelled(added), {"x": x, "s": skip})[0], x + b + skip)


def test_an_unknown_activation_stays(rng):
    body = f'y = {M}.FusedConv<activation="Swoosh">(x, w)'
    assert reason_of(body, {"x": floats(rng, 1, 4, 3, 3)}, {"w": floats(rng, 2, 4, 1, 1)}) == (
        "its activation is Swoosh"
    )


@pytest.mark.parametrize("flag", [True, False])
def test_branches_are_spelled_too(flag: bool, rng):
    body = (
        f"y = If(c) <then_branch = a () => (float[2,8] t) {{ t = {M}.FastGelu(x, b) }}, "
        f"else_branch = o () => (float[2,8] e) {{ h = {M}.Gelu(x) e = {M}.QuickGelu(h) }}>"
    )
    inputs = {"x": floats(rng, 2, 8), "c": np.asarray(flag)}
    check(body, inputs, {"b": floats(rng, 8)}, most=4e-6)
