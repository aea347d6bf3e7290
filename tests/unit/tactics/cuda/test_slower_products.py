# SPDX-License-Identifier: Apache-2.0
"""Which products are left float: those slower in codes by more than their share of the weights is worth."""

import numpy as np
import pytest

pytest.importorskip("torch")
from quantrt.dtypes import INT8
from quantrt.quantize.qparams import QuantizedTensor, choose_qparams
from quantrt.tactics.cuda.choices import Choice, Choices
from quantrt.tactics.cuda.slower_products import SIZE_PRICE_RATIO, slower_products
from quantrt.tactics.cuda.tactic import Tactic
from quantrt.tactics.cuda.timing_cache import TimingCache

TOTAL_US = 1000.0
"""Of which the weights are worth 5."""
ROWS = {
    name: {"product": f"/{name}", "codes": "int8", "reads": f"{name}.codes", "median_us": median_us}
    for name, median_us in (("large", 110.0), ("small", 110.0))
}


def choices_of(**median_us: float) -> Choices:
    tactic = object.__new__(Tactic)
    by_region = {name: Choice(tactic, us, "timed", name) for name, us in median_us.items()}
    by_region["others"] = Choice(tactic, TOTAL_US - sum(median_us.values()), "timed", "others")
    return Choices(by_region, {}, {}, TimingCache({}))


def weights_of(**sizes: int) -> dict[tuple[str, int], QuantizedTensor]:
    qparams = choose_qparams(np.float32(-1), np.float32(1), dtype=INT8, symmetric=True, qmin=-127, qmax=127)
    return {
        (f"/{name}", 1): QuantizedTensor(np.zeros(size, np.int8), qparams) for name, size in sizes.items()
    }


def left_float(float_us: dict[str, float]) -> set[str]:
    found = slower_products(
        choices_of(large=110.0, small=110.0), float_us, ROWS, weights_of(large=900, small=100)
    )
    return set(found)


def test_what_is_slower_by_more_than_its_weights_are_worth_is_left_float():
    prices = {name: SIZE_PRICE_RATIO * TOTAL_US * share for name, share in (("large", 0.9), ("small", 0.1))}
    for margin, expected in ((0.9, set()), (1.1, {"/large", "/small"})):
        assert left_float({name: 110.0 - margin * price for name, price in prices.items()}) == expected


def test_the_same_time_is_worth_it_for_many_weights_and_not_for_few():
    assert left_float({"large": 106.0, "small": 106.0}) == {"/small"}


def test_without_a_known_float_time_nothing_is_left_float():
    assert left_float({}) == set()


def test_a_conversion_counts_for_its_readers():
    choices = choices_of(large=110.0, small=110.0, **{"convert shared": 50.0})
    rows = {name: row | {"reads": "shared"} for name, row in ROWS.items()}
    weights = weights_of(large=900, small=100)
    found = slower_products(choices, {"large": 130.4, "small": 134.8}, rows, weights)
    assert set(found) == {"/large"}  # 110 + 25 us less 4.5 us for the weights is above 130.4
    assert "135.0 us against 130.4 us" in found["/large"]
