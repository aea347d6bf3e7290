# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from quantrt.assign.assignment.assignment import assign, assign_within_time
from quantrt.assign.tables.cost_model import CostModel
from quantrt.errors import DataError
from tests.unit.assign.tables.assign_tables import DAMAGES, tables


def test_the_fastest_within_a_limit_and_why_regions_are_float():
    found = assign(tables(), 1e-3)
    assert found is not None
    assert found.quantized == ("a", "c", "d", "e")  # d is slower, but conversions around it would cost more
    assert found.predicted_ms == pytest.approx(3 * 0.4 + 1.05 + 2 * 1.0 + 3 * 0.05)
    assert found.noise_ratio == pytest.approx(5e-4)
    assert found.reasons["b"].startswith("kept float: damage, in int8 it alone makes noise 5.0e-02")
    assert set(found.reasons) == {"b", "f"}


def test_without_a_limit_no_damages_are_needed():
    found = assign(tables(damages={}), math.inf)
    assert found is not None
    assert found.precisions["b"] == "int8"


def test_a_region_that_is_slower_in_int8_says_so():
    base = tables()
    slow = CostModel({**base.costs.times_ms, "d": {"fp32": 1.0, "int8": 1.3}}, base.costs.crossings, 0.5)
    found = assign(tables(costs=slow), math.inf)
    assert found.reasons == {"d": "kept float: not faster in int8 here (200.0 us slower, as predicted)"}


def test_a_region_that_breaks_the_outputs_stays_float():
    found = assign(tables(damages={**DAMAGES, "a": math.nan}), 1.0)
    assert found.reasons["a"] == "kept float: int8 makes the outputs NaN or infinite"


def test_least_damage_within_a_time():
    all_int8 = assign_within_time(tables(), 3.7)
    assert all_int8 is None or all_int8.predicted_ms <= 3.7 + 1e-9
    found = assign_within_time(tables(), 4.6)
    assert found.precisions["b"] == found.precisions["f"] == "fp32"
    assert found.predicted_ms <= 4.6
    assert assign_within_time(tables(), 1.0) is None


def test_missing_entries_are_named():
    with pytest.raises(DataError, match="no damage of 'a' in int8"):
        assign(tables(damages={}), 0.1)
    with pytest.raises(DataError, match="without times"):
        assign(tables(costs=None), 0.1)
