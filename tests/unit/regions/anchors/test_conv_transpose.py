# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions with the elementwise nodes behind them."""

import numpy as np
import pytest

from quantrt.regions.formula_json import from_json, to_json
from quantrt.regions.region import ConvTranspose
from tests.unit.model.check_pass import random_feeds
from tests.unit.regions.check_partition import check_values, partitioned

FLOAT32 = 3e-6

CASES = {
    "blocks": ("<strides=[2,2]>", (4, 3, 2, 2), True),
    "wide blocks": ("<strides=[4,2]>", (4, 3, 4, 2), True),
    "overlapping": ("<strides=[2,2], pads=[1,1,1,1]>", (4, 3, 4, 4), False),
    "uneven": ("<strides=[2,1], pads=[1,0,0,1], output_padding=[1,0]>", (4, 3, 3, 3), False),
    "dilated": ("<dilations=[2,1]>", (4, 3, 3, 2), False),
    "groups": ("<strides=[2,2], group=2>", (4, 3, 2, 2), False),
    "one": ("", (4, 3, 1, 1), True),
}


def weights(shape: tuple[int, ...], groups: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.standard_normal(shape).astype(np.float32),
        "b": rng.standard_normal(shape[1] * groups).astype(np.float32),
    }


@pytest.mark.parametrize("case", CASES)
def test_with_bias_and_activation(case: str, rng):
    attributes, shape, is_spread = CASES[case]
    found = partitioned(
        f"c = ConvTranspose{attributes}(x, w, b) y = Relu(c)",
        weights=weights(shape, 2 if case == "groups" else 1),
    )
    assert found.kinds() == ["ConvTranspose: ConvTranspose Relu"]
    formula = found.only(ConvTranspose).formula
    assert formula.is_spread == is_spread
    assert from_json(to_json(formula)) == formula
    feeds = random_feeds(found.graph, rng)
    check_values(found, feeds, tolerance=FLOAT32)


@pytest.mark.parametrize(("rank", "inputs"), [(1, "float[2,4,N] x"), (3, "float[N,4,3,2,3] x")])
def test_other_ranks(rank: int, inputs: str, rng):
    strides = ",".join("2" * rank)
    found = partitioned(
        f"y = ConvTranspose<strides=[{strides}]>(x, w)",
        inputs=inputs,
        weights={"w": weights((4, 3, *[2] * rank))["w"]},
    )
    assert found.only(ConvTranspose).formula.is_spread
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('y = ConvTranspose<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)', "size of its result"),
        ("y = ConvTranspose<output_shape=[11,11], strides=[2,2]>(x, w)", "size of its result"),
        ("v = Relu(k) y = ConvTranspose(x, v)", "not a constant"),
    ],
)
def test_why_not(body: str, reason: str):
    found = partitioned(
        body, inputs="float[2,4,6,6] x, float[4,3,2,2] k", weights={"w": weights((4, 3, 2, 2))["w"]}
    )
    assert any(reason in text for text in found.reasons("product"))
