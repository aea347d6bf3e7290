# SPDX-License-Identifier: Apache-2.0
"""Norms over groups of channels in the spellings of exporters, with what follows them."""

import numpy as np
import pytest

from quantrt.regions.formula_json import from_json, to_json
from quantrt.regions.region import GroupNorm
from tests.unit.model.check_pass import random_feeds
from tests.unit.regions.check_partition import check_values, partitioned

FLOAT32 = 3e-6
X = "float[2,12,5,6] x"
ONES = {"ones": np.ones(4, np.float32), "zeros": np.zeros(4, np.float32)}
TARGET = {"groups": np.array([0, 4, -1], np.int64)}

SILU = "s = Sigmoid(n) y = Mul(n, s)"
TORCHSCRIPT = """r = Reshape(x, groups)
  i = InstanceNormalization<epsilon=1e-6>(r, ones, zeros)
  shape = Shape(x)
  b = Reshape(i, shape)
  m = Mul(b, gamma)
  n = Add(m, beta)"""
DYNAMO = TORCHSCRIPT.replace("shape = Shape(x)\n", "").replace("(i, shape)", "(i, whole)")


def affine(*shape: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name in ("gamma", "beta")}


def formula_of(found) -> GroupNorm:
    formula = found.only(GroupNorm).formula
    assert from_json(to_json(formula)) == formula
    return formula


@pytest.mark.parametrize("inputs", [X, "float[N,12,H,W] x"], ids=["fixed", "any"])
def test_torchscript(inputs: str, rng):
    weights = {**ONES, **TARGET, **affine(12, 1, 1)}
    found = partitioned(f"{TORCHSCRIPT} {SILU}", inputs=inputs, weights=weights)
    (region,) = found.regions.regions
    assert region.inputs == ("x",)
    formula = formula_of(found)
    assert (formula.groups, formula.channels, formula.shift) == (4, 12, None)
    assert formula.epsilon == pytest.approx(1e-6)
    assert [x.op for x in formula.epilogue.instructions] == ["mul", "add", "sigmoid", "mul"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_dynamo(rng):
    whole = {"whole": np.array([2, 12, 5, 6], np.int64)}
    weights = {**ONES, **TARGET, **whole, **affine(12, 1, 1)}
    found = partitioned(f"{DYNAMO} {SILU}", inputs=X, weights=weights)
    assert [kind.split(":")[0] for kind in found.kinds()] == ["GroupNorm"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(("opset", "count"), [(18, 4), (21, 12), (23, 12)])
def test_the_operator(opset: int, count: int, rng):
    """Before opset 21 it has a scale for every group, then for every channel."""
    found = partitioned(
        f"n = GroupNormalization<num_groups=4, epsilon=1e-3>(x, gamma, beta) {SILU}",
        inputs=X,
        opset=opset,
        weights=affine(count),
    )
    (kind,) = found.kinds()
    assert kind == "GroupNorm: GroupNormalization Sigmoid Mul"
    assert formula_of(found).groups == 4
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize("shape", ["N,12,H,W", "2,12,41", "1,12,3,4,5"])
def test_every_channel_by_itself(shape: str, rng):
    found = partitioned(
        "n = InstanceNormalization(x, gamma, beta) y = LeakyRelu(n)",
        inputs=f"float[{shape}] x",
        weights=affine(12),
    )
    formula = formula_of(found)
    assert (formula.groups, formula.channels) == (12, 12)
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_equal_scales_are_numbers(rng):
    weights = {"two": np.full(12, 2, np.float32), "zero": np.zeros(12, np.float32)}
    found = partitioned("y = InstanceNormalization(x, two, zero)", inputs=X, weights=weights)
    assert [x.op for x in formula_of(found).epilogue.instructions] == ["const", "mul"]
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


EMBEDDED = """t = Unsqueeze(e, axes)
  c = Add(x, t)
  n = GroupNormalization<num_groups=4>(c, gamma, beta)
  one = Add(t, unit)
  m = Mul(n, one)
  y = Add(m, t)"""


@pytest.mark.parametrize("batch", ["2", "N"])
def test_embeddings_of_an_image_before_and_behind(batch: str, rng):
    """What is added to every pixel of a channel before, and scale and shift behind."""
    axes = {"axes": np.array([2, 3], np.int64), "unit": np.array(1, np.float32)}
    found = partitioned(
        EMBEDDED,
        inputs=f"float[{batch},12,5,6] x, float[{batch},12] e",
        opset=21,
        weights={**axes, **affine(12)},
    )
    region = found.only(GroupNorm)
    assert region.formula.shift is not None
    assert len(region.nodes) == 4, found.kinds()
    assert region.inputs[:2] == ("x", "t")
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_a_sum_between_a_convolution_and_a_norm_is_no_fusion_that_failed():
    weights = {"w": np.ones((12, 12, 1, 1), np.float32), "axes": np.array([2, 3], np.int64), **affine(12)}
    body = """v = Conv(x, w) t = Unsqueeze(e, axes) c = Add(v, t)
      y = GroupNormalization<num_groups=4>(c, gamma, beta)"""
    found = partitioned(body, inputs=f"{X}, float[2,12] e", opset=21, weights=weights)
    assert found.only(GroupNorm).formula.shift is not None
    assert not found.regions.mismatches


def test_a_sum_that_others_read_stays_outside(rng):
    axes = {"axes": np.array([2, 3], np.int64)}
    body = """t = Unsqueeze(e, axes) c = Add(t, x) n = GroupNormalization<num_groups=4>(c, gamma, beta)
      y = Add(n, c)"""
    found = partitioned(body, inputs=f"{X}, float[2,12] e", opset=21, weights={**axes, **affine(12)})
    region = found.only(GroupNorm)
    assert region.formula.shift is None
    assert region.inputs == ("c",)
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_a_skip_connection_is_part_of_it(rng):
    body = "n = GroupNormalization<num_groups=4>(x, gamma, beta) a = Add(n, r) y = Relu(a)"
    found = partitioned(body, inputs=f"{X}, float[2,12,5,6] r", opset=21, weights=affine(12))
    assert found.only(GroupNorm).inputs == ("x", "r")
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_a_reshape_that_others_read_is_not_taken_apart(rng):
    """The norm is then one of three axes, each group a channel."""
    weights = {**ONES, **TARGET, **affine(12, 1, 1)}
    body = f"{TORCHSCRIPT} y = Identity(n) z = Relu(r)"
    found = partitioned(body, inputs=X, outputs="float[...] y, float[...] z", weights=weights)
    assert formula_of(found).channels == 4
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(
    ("body", "inputs", "reason"),
    [
        ("y = InstanceNormalization(x, s, beta)", f"{X}, float[12] s", "is not a constant of floats"),
        ("y = InstanceNormalization(x, gamma, beta)", "float[2,C,5] x", "channels is not known"),
        ("y = InstanceNormalization(x, gamma, beta)", "float[2,12] x", "no spatial axes"),
    ],
)
def test_why_not(body: str, inputs: str, reason: str):
    found = partitioned(body, inputs=inputs, weights=affine(12))
    assert any(reason in text for text in found.reasons("group norm"))
