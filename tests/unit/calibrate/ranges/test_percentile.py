# SPDX-License-Identifier: Apache-2.0
"""Which part of a histogram holds a share of its values, worked out by hand."""

import numpy as np
import pytest

from quantrt.calibrate.ranges.grid import Bins
from quantrt.calibrate.ranges.percentile import percentile_bounds


def bins(first: float, counts: list[int]) -> Bins:
    """Bins of width 1, the first from `first` on; those without values are no bins."""
    left = first + np.flatnonzero(counts).astype(np.float64)
    return Bins(left, left + 1.0, np.array([count for count in counts if count], np.float64))


def bounds(found: Bins, coverage_ratio: float, *, per_side: bool) -> tuple[float, float]:
    lo, hi = min(float(found.left[0]), 0.0), max(float(found.right[-1]), 0.0)
    return percentile_bounds(found, lo, hi, coverage_ratio, per_side=per_side)


TWO_SIDED = bins(-2.0, [10] * 8)


def test_half_of_the_rest_is_left_out_at_each_end():
    """0.9 of the values lie below the upper bound, and 0.9 above the lower one."""
    assert bounds(TWO_SIDED, 0.8, per_side=True) == pytest.approx((-1.2, 5.2))


def test_one_magnitude_bounds_both_sides_of_a_grid_that_cannot_shift():
    """64 of 80 magnitudes: 20 + 20 + 10 + 10 below 4, and 4 of the 10 in the bin behind it."""
    assert bounds(TWO_SIDED, 0.8, per_side=False) == pytest.approx((-2.0, 4.4))


@pytest.mark.parametrize("per_side", [True, False])
def test_what_has_one_sign_is_bounded_at_its_far_end_alone(per_side: bool):
    assert bounds(bins(0.0, [10] * 10), 0.9, per_side=per_side) == pytest.approx((0.0, 9.0))
    assert bounds(bins(-10.0, [10] * 10), 0.9, per_side=per_side) == pytest.approx((-9.0, 0.0))


@pytest.mark.parametrize("per_side", [True, False])
def test_all_values_take_the_whole_range_and_no_more(per_side: bool):
    """The outermost bins reach beyond the least and the greatest value."""
    assert percentile_bounds(TWO_SIDED, -1.75, 5.5, 1.0, per_side=per_side) == (-1.75, 5.5)


def test_a_bound_lies_inside_a_bin_by_the_share_of_its_values():
    uneven = bins(0.0, [96, 2, 1, 1])
    assert bounds(uneven, 0.97, per_side=False) == pytest.approx((0.0, 1.5))
    assert bounds(uneven, 0.985, per_side=False) == pytest.approx((0.0, 2.5))
    assert bounds(uneven, 0.48, per_side=False) == pytest.approx((0.0, 0.5))


def test_a_range_holds_zero_though_hardly_a_value_is_below_it():
    """A hundredth of the values is left out at each end, all that is negative among it."""
    counts = [1, *[0] * 4, *[50] * 4]
    assert bounds(bins(-1.0, counts), 0.98, per_side=True) == pytest.approx((0.0, 7.9598))
    assert bounds(bins(-8.0, counts[::-1]), 0.98, per_side=True) == pytest.approx((-7.9598, 0.0))
