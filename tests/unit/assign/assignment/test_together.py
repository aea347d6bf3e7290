# SPDX-License-Identifier: Apache-2.0
"""Choices of regions that make more noise together than apart."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pytest

from quantrt.assign.assignment.together import choose_together
from quantrt.assign.tables.region import FLOAT

DAMAGES = {name: {FLOAT: 0.0, "int8": 0.01} for name in "abcd"}


@dataclass(frozen=True)
class Taken:
    """The regions in codes are those whose damages fit, from the first on."""

    precisions: Mapping[str, str]

    @property
    def quantized(self) -> tuple[str, ...]:
        return tuple(name for name, precision in self.precisions.items() if precision != FLOAT)


def taken(limit: float, damages: Mapping[str, Mapping[str, float]]) -> Taken:
    left, precisions = limit, {}
    for name, row in damages.items():
        fits = row["int8"] <= left
        precisions[name] = "int8" if fits else FLOAT
        left -= row["int8"] if fits else 0.0
    return Taken(precisions)


def quarrel(names: Collection[str]) -> float:
    """Two of them make ten times the noise together."""
    return 0.01 * len(names) + (0.2 if {"b", "c"} <= set(names) else 0.0)


def test_damages_that_add_up_stay_as_they_are():
    made = choose_together(taken, DAMAGES, lambda names: 0.01 * len(names), 0.025)
    assert made.found is not None and made.found.quantized == ("a", "b")
    assert (made.damages, made.culprits) == (DAMAGES, ())
    assert made.noise_ratio == pytest.approx(0.02)


def test_regions_that_make_more_noise_together_count_for_more():
    made = choose_together(taken, DAMAGES, quarrel, 0.05)
    assert made.culprits == ("b", "c")
    assert made.found is not None and made.found.quantized == ("a", "d")
    assert made.noise_ratio == pytest.approx(0.02)
    assert made.damages["b"]["int8"] == pytest.approx(0.01 * 0.22 / 0.02)
    assert made.damages["a"] == DAMAGES["a"]


def test_without_a_region_in_codes_there_is_no_noise():
    made = choose_together(taken, DAMAGES, quarrel, 0.0)
    assert made.found is not None and made.found.quantized == ()
    assert made.noise_ratio is None


def test_nothing_within_the_limit_is_nothing():
    made = choose_together(lambda limit, damages: None, DAMAGES, quarrel, 0.1)
    assert made.found is None and made.damages == DAMAGES


def shared(names: Collection[str]) -> float:
    """They share a rounding that each has alone: half as much noise together as apart."""
    return 0.005 * len(names)


def test_regions_that_share_a_rounding_leave_room_for_more():
    made = choose_together(taken, DAMAGES, shared, 0.021)
    assert made.found is not None and made.found.quantized == ("a", "b", "c", "d")
    assert made.noise_ratio == pytest.approx(0.02)


def test_more_that_would_be_beyond_the_limit_are_not_taken():
    made = choose_together(taken, DAMAGES, lambda names: 0.01 if len(names) < 3 else 0.04, 0.021)
    assert made.found is not None and made.found.quantized == ("a", "b")
