# SPDX-License-Identifier: Apache-2.0
"""Times that a mix is decided by: all of them from the same rounds."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from quantrt.assign.assignment.assignment import assign
from quantrt.assign.tables.cost_model import CostModel
from quantrt.assign.tables.region import FLOAT, Region
from quantrt.mix.contest import Pair
from quantrt.mix.measure import Measurer, not_float_for_time
from quantrt.tactics.timing import Latency
from tests.unit.assign.tables.assign_tables import tables

FLOATS, CODES = "onnxruntime fp32", "onnxruntime int8"


def test_floats_that_left_the_race_are_told_by_the_rounds_until_then():
    """In these they took 1.5 times as long as the codes, which have their time of all rounds."""
    contest = SimpleNamespace(
        latencies={
            "openvino fp32": Latency((1.0,) * 5),
            CODES: Latency((2.0, 4.0, 2.0, 1.0, 1.0)),
        },
        left={FLOATS: Latency((3.0, 6.6, 2.8))},
    )
    measurer = Measurer(None, contest, None, Pair("int8", CODES, FLOATS), None)
    assert measurer._latencies_ms == {CODES: 2.0, FLOATS: pytest.approx(3.0)}


@pytest.mark.parametrize(
    ("timed", "winner", "best_ms"),
    [
        ({FLOATS: (2.0, 4.0, 9.0), CODES: (1.2, 2.4, 1.8)}, CODES, 0.6 * 4.0),
        ({FLOATS: (2.0, 4.0, 9.0), CODES: (1.2, 2.4, 1.8)}, FLOATS, 4.0),
        ({"openvino fp32": (1.0, 1.0, 3.0), CODES: (2.0, 4.0, 6.0)}, "openvino fp32", 0.5 * 4.0),
    ],
    ids=["codes beside floats", "the floats", "without the floats, beside the codes"],
)
def test_what_is_had_is_told_by_the_rounds_that_it_shares(timed, winner: str, best_ms: float):
    contest = SimpleNamespace(
        latencies={name: Latency(times) for name, times in timed.items()},
        choice=SimpleNamespace(winner=winner),
    )
    measurer = Measurer(None, contest, None, Pair("int8", CODES, FLOATS), None)
    assert measurer.best_ms == pytest.approx(best_ms)
    assert measurer.codes_ms == pytest.approx(0.6 * 4.0 if FLOATS in timed else 4.0)


@pytest.mark.parametrize("float_ms", [0.0, 0.9, 1.0])
def test_a_table_is_float_for_its_damage_alone(float_ms: float):
    regions = (Region("table", ("table",), ("Gather",)), Region("product", ("product",), ("MatMul",)))
    times_ms = {"table": {FLOAT: float_ms, "int8": 1.0}, "product": {FLOAT: 2.0, "int8": 3.0}}
    damages = {name: {FLOAT: 0.0, "int8": 0.1} for name in times_ms}
    costs = not_float_for_time(CostModel(times_ms, (), 0.0), regions)
    assert costs.times_ms == {"table": {FLOAT: 1.01, "int8": 1.0}, "product": times_ms["product"]}
    found = replace(tables(), regions=regions, costs=costs, damages=damages)
    assert assign(found, 0.2).precisions == {"table": "int8", "product": FLOAT}
    assert assign(found, 0.01).precisions == {"table": FLOAT, "product": FLOAT}


def test_a_table_that_is_slower_in_floats_stays_so():
    costs = CostModel({"table": {FLOAT: 1.5, "int8": 1.0}}, (), 0.0)
    assert not_float_for_time(costs, (Region("table", ("table",), ("Gather",)),)) == costs
