# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from quantrt.assign.assignment.culprits import excess_ratio, find_culprits, raised

NAMES = tuple("abcdefgh")
DAMAGES = dict.fromkeys(NAMES, 0.01)


def measure_with(excess):
    """Noise of regions together: the sum, and what `excess` of the set says."""
    return lambda names: sum(DAMAGES[name] for name in names) + excess(set(names))


def test_one_region_that_is_worse_in_company_is_found():
    measure = measure_with(lambda names: 1.0 if "f" in names and len(names) > 1 else 0.9 * ("f" in names))
    assert find_culprits(NAMES, DAMAGES, measure) == ("f",)


def test_two_that_are_bad_together_alone_are_found_wherever_they_stand():
    measure = measure_with(lambda names: 1.0 if {"e", "f"} <= names else 0.0)
    assert find_culprits(NAMES, DAMAGES, measure) == ("e", "f")
    apart = measure_with(lambda names: 1.0 if {"a", "h"} <= names else 0.0)
    assert find_culprits(NAMES, DAMAGES, apart) == ("a", "h")


def test_what_makes_a_nan_is_looked_into():
    measure = measure_with(lambda names: math.nan if "b" in names else 0.0)
    found = find_culprits(NAMES, DAMAGES, measure)
    assert "b" in found


def test_ratios():
    assert excess_ratio(("a", "b"), DAMAGES, 0.04) == pytest.approx(2.0)
    assert excess_ratio((), {}, 0.0) == 1.0
    assert excess_ratio(("x",), {"x": 0.0}, 0.1) == math.inf
    damages = {"a": {"fp32": 0.0, "int8": 1.0}, "b": {"fp32": 0.0, "int8": 2.0, "fp8": 0.0}}
    assert raised(damages, ("b",), 3.0) == {"a": damages["a"], "b": {"fp32": 0.0, "int8": 6.0, "fp8": 0.0}}
    assert raised(damages, ("b",), math.inf)["b"] == {"fp32": 0.0, "int8": math.inf, "fp8": math.inf}
