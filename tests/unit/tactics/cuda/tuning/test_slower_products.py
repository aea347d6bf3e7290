# SPDX-License-Identifier: Apache-2.0
"""Which products are left float: those that are slower in codes, the codes' making included."""

import pytest

pytest.importorskip("torch")
from quantrt.tactics.cuda.tactic import Tactic
from quantrt.tactics.cuda.timing.timing_cache import TimingCache
from quantrt.tactics.cuda.tuning.choices import Choice, Choices
from quantrt.tactics.cuda.tuning.slower_products import slower_products

ROWS = {
    name: {"product": f"/{name}", "codes": "int8", "reads": f"{name}.codes", "median_us": 110.0}
    for name in ("first", "second")
}


def choices_of(**median_us: float) -> Choices:
    tactic = object.__new__(Tactic)
    by_region = {name: Choice(tactic, us, "timed", name) for name, us in median_us.items()}
    return Choices(by_region, {}, {}, TimingCache({}))


CHOICES = choices_of(first=110.0, second=110.0)


def test_what_is_slower_in_codes_is_left_float():
    assert slower_products(CHOICES, {"first": 109.9, "second": 110.1}, ROWS) == {
        "/first": "slower in int8 on this GPU: 110.0 us against 109.9 us"
    }


def test_without_a_known_float_time_nothing_is_left_float():
    assert slower_products(CHOICES, {}, ROWS) == {}


def test_a_conversion_counts_for_its_readers():
    choices = choices_of(first=110.0, second=110.0, **{"convert shared": 50.0})
    rows = {name: row | {"reads": "shared"} for name, row in ROWS.items()}
    found = slower_products(choices, {"first": 134.0, "second": 136.0}, rows)
    assert set(found) == {"/first"}
    assert "135.0 us against 134.0 us" in found["/first"]


def test_scales_of_rows_count_for_what_they_take_beyond_the_norm_alone():
    made = {
        "product": None,
        "codes": "",
        "reads": "x",
        "formula": "Rows",
        "nodes": ["mean", "norm", "norm_rows"],
        "median_us": 30.0,
        "outputs": [["norm", "float16", [8, 4], False], ["shared", "int8", [8, 4], False]],
    }
    choices = choices_of(first=110.0, second=110.0, norm_rows=30.0)
    rows = {name: row | {"reads": "shared"} for name, row in ROWS.items()} | {"norm_rows": made}
    floats = {"first": 114.0, "second": 116.0, "norm": 20.0}
    assert set(slower_products(choices, floats, rows)) == {"/first"}, "5 us for each of two"
    floats["norm_rows"] = 30.0
    assert slower_products(choices, floats, rows) == {}, "it is there anyway"


def test_floats_stored_beside_codes_count_where_others_read_the_codes():
    shared = ["x", "int8", [10, 100], False]
    rows = {name: row | {"reads": "x", "inputs": [shared]} for name, row in ROWS.items()}
    floats = {"first": 100.0, "second": 120.0}
    assert set(slower_products(CHOICES, floats, rows)) == {"/first"}, "without the memory's rate"
    assert set(slower_products(CHOICES, floats, rows, 2000 / 9.0)) == {"/first"}, (
        "9 us less than what it gains"
    )
    assert slower_products(CHOICES, floats, rows, 2000 / 11.0) == {}, "11 us more"
    floats["second"] = 100.0
    assert set(slower_products(CHOICES, floats, rows, 1.0)) == {"/first", "/second"}, "nobody reads the codes"
    adds = {"product": None, "codes": "", "reads": "y", "median_us": 5.0, "inputs": [shared]}
    assert slower_products(CHOICES, floats, rows | {"adds": adds}, 2000 / 22.0) == {}, "an addition does"
    found = slower_products(CHOICES, floats, rows | {"adds": adds}, 2000 / 18.0)
    assert set(found) == {"/first", "/second"}, "9 us for each of two"
    assert "110.0 us against 109.0 us" in found["/first"]
