# SPDX-License-Identifier: Apache-2.0
"""Resized images in the spellings that mean repeated pixels or interpolation, with what follows them."""

import numpy as np
import pytest

from quantrt.regions.formula_json import from_json, to_json
from quantrt.regions.region import Resize
from tests.unit.model.check_pass import random_feeds
from tests.unit.regions.check_partition import check_values, partitioned

FLOAT32 = 3e-6
X = "float[2,4,5,6] x"

NEAREST = {
    "asymmetric": 'coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
    "half pixel": 'coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"',
    "default": 'nearest_mode="round_prefer_floor"',
    "pytorch": 'coordinate_transformation_mode="pytorch_half_pixel"',
    "tensorflow": 'coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor"',
    "rounded": 'coordinate_transformation_mode="asymmetric"',
}

LINEAR = {
    "half pixel": 'mode="linear"',
    "corners": 'mode="linear", coordinate_transformation_mode="align_corners"',
    "pytorch": 'mode="linear", coordinate_transformation_mode="pytorch_half_pixel"',
}

NOT = {
    "cubic": ('mode="cubic"', (2, 2), "neither"),
    "ceil": ('coordinate_transformation_mode="asymmetric", nearest_mode="ceil"', (2, 2), "'ceil'"),
    "rounded by three": ('coordinate_transformation_mode="asymmetric"', (3, 3), "round_prefer_floor"),
    "no whole factor": ('mode="nearest"', (1.5, 2), "no whole numbers"),
    "smaller": ('mode="nearest"', (0.5, 0.5), "no whole numbers"),
    "asymmetric": ('mode="linear", coordinate_transformation_mode="asymmetric"', (2, 2), "asymmetric"),
    "corners": ('mode="linear", coordinate_transformation_mode="align_corners"', (1.5, 2), "corners"),
    "antialias": ('mode="linear", antialias=1', (0.5, 0.5), "antialiasing"),
}


def scales(*factors: float) -> dict[str, np.ndarray]:
    return {"scales": np.array([1, 1, *factors], np.float32)}


@pytest.mark.parametrize("factors", [(2, 2), (2, 1), (1, 2)])
@pytest.mark.parametrize("spelling", NEAREST)
def test_repeated_pixels(spelling: str, factors: tuple[int, int], rng):
    found = partitioned(
        f"r = Resize<{NEAREST[spelling]}>(x, , scales) y = Relu(r)", inputs=X, weights=scales(*factors)
    )
    assert found.kinds() == ["Resize: Resize Relu"]
    formula = found.only(Resize).formula
    assert formula.is_nearest and formula.scales == factors
    assert from_json(to_json(formula)) == formula
    check_values(found, random_feeds(found.graph, rng), tolerance=0.0)


@pytest.mark.parametrize("factors", [(2, 2), (1.5, 3), (0.5, 1)])
@pytest.mark.parametrize("spelling", LINEAR)
def test_interpolation(spelling: str, factors: tuple[float, float], rng):
    found = partitioned(
        f"r = Resize<{LINEAR[spelling]}>(x, , scales) y = Relu(r)", inputs=X, weights=scales(*factors)
    )
    if spelling == "corners" and factors != (2, 2):
        assert found.reasons("resize")
        return
    formula = found.only(Resize).formula
    assert not formula.is_nearest
    assert formula.has_corners == (spelling == "corners")
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)


def test_sizes_that_are_known(rng):
    sizes = {"sizes": np.array([2, 4, 10, 18], np.int64)}
    found = partitioned("y = Resize(x, , , sizes)", inputs=X, weights=sizes)
    assert found.only(Resize).formula.scales == (2, 3)
    check_values(found, random_feeds(found.graph, rng), tolerance=0.0)


def test_sizes_need_not_be_known_where_factors_are(rng):
    found = partitioned("y = Resize(x, , scales)", inputs="float[N,4,H,W] x", weights=scales(3, 3))
    assert found.only(Resize).formula.scales == (3, 3)
    check_values(found, random_feeds(found.graph, rng), tolerance=0.0)


def test_chosen_axes(rng):
    weights = {"scales": np.array([3], np.float32)}
    found = partitioned("y = Resize<axes=[-1]>(x, , scales)", inputs=X, opset=18, weights=weights)
    assert found.only(Resize).formula.scales == (1, 3)
    check_values(found, random_feeds(found.graph, rng), tolerance=0.0)


@pytest.mark.parametrize("case", NOT)
def test_why_not(case: str):
    attributes, factors, reason = NOT[case]
    found = partitioned(
        f"y = Resize<{attributes}>(x, , scales)", inputs=X, opset=18, weights=scales(*factors)
    )
    assert any(reason in text for text in found.reasons("resize")), found.reasons("resize")
