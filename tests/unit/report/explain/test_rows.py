# SPDX-License-Identifier: Apache-2.0
"""Which bound binds a layer, what it would take in another precision, and what would gain most."""

import pytest

from quantrt.errors import UsageError
from quantrt.gpu import gpu_named
from quantrt.plan.plan import Layer, Plan
from quantrt.report.engine_layers.layer import CHANNELS_LAST, EngineLayer, TensorForm
from quantrt.report.explain.changes import BatchTime, cheapest_changes
from quantrt.report.explain.neighbours import conversions, missed_fusions
from quantrt.report.explain.peaks import Peaks, gpu_peaks
from quantrt.report.explain.rows import CONVERSIONS, LayerRow, layer_rows
from quantrt.report.explain.times import AT_BUILD, ESTIMATED, HERE, Times
from quantrt.report.explain.what_if import predict, select
from tests.plans import make_plan

PEAKS = Peaks(
    operations_per_us={"int8": 1000.0, "fp32": 100.0},
    bytes_per_us=((1000, 100.0), (10**9, 10.0)),
    launch_us=1.0,
    source="made up",
)


def form(name: str, dtype: str = "float32", layout: str = "row major") -> TensorForm:
    return TensorForm(name=name, dims=(1, 4), dtype=dtype, layout=layout)


def layer(name: str, **fields: object) -> EngineLayer:
    values = {
        "kind": "Conv",
        "nodes": (name,),
        "precision": "fp32",
        "computes_in": "fp32",
        "reason": "excluded by 'a*'",
        "bytes_moved": 500,
        "operations": 10_000,
        "inputs": (form(f"{name} in"),),
        "outputs": (form(name),),
    }
    return EngineLayer(name=name, **{**values, **fields})  # type: ignore[arg-type]


def plan_of(*layers: EngineLayer, **fields: object) -> Plan:
    nodes = [
        Layer(name=node, op_type="Conv", precision=row.precision, reason=row.reason)
        for row in layers
        for node in row.nodes
    ]
    return make_plan("onnxruntime", layers=tuple(nodes), **fields)


def rows_of(*pairs: tuple[EngineLayer, float | None], peaks: Peaks | None = PEAKS) -> tuple[LayerRow, ...]:
    layers = [row for row, _ in pairs]
    return layer_rows(
        plan_of(*layers), layers, times_of(*pairs), peaks, conversions=conversions(layers), missed={}
    )


def times_of(*pairs: tuple[EngineLayer, float | None]) -> Times:
    layer_us = {row.name: time_us for row, time_us in pairs if time_us is not None}
    return Times(layer_us=layer_us, basis=HERE, method="", engine_us=None)


@pytest.mark.parametrize(
    ("fields", "bound", "roofline_us"),
    [
        ({}, "compute", 100.0),
        ({"bytes_moved": 5000}, "memory", 500.0),
        ({"bytes_moved": 10, "operations": 10}, "launch", 0.1),
        ({"bytes_moved": 10, "operations": 10, "attributes": {"runners": ["a"] * 200}}, "launch", 0.1),
    ],
    ids=["compute", "memory", "launch", "steps"],
)
def test_the_longest_least_time_binds(fields: dict, bound: str, roofline_us: float):
    (row,) = rows_of((layer("a", **fields), 1000.0))
    assert (row.bound, row.roofline_us) == (bound, pytest.approx(roofline_us))
    assert row.reached_ratio == pytest.approx(roofline_us / 1000.0)
    assert row.share_ratio == 1.0


@pytest.mark.parametrize(
    "fields",
    [{"bytes_moved": None}, {"operations": None}, {"computes_in": "bf16"}],
    ids=["bytes", "operations", "peak"],
)
def test_nothing_is_said_where_work_or_peaks_are_not_known(fields: dict):
    (row,) = rows_of((layer("a", **fields), 10.0))
    assert (row.bound, row.roofline_us, row.reached_ratio) == ("", None, None)


def test_without_peaks_or_a_time_there_is_no_roofline():
    (row,) = rows_of((layer("a"), 10.0), peaks=None)
    assert row.bound == "" and row.share_ratio == 1.0
    (row,) = rows_of((layer("a"), None))
    assert row.time_us is None and row.share_ratio is None


def test_a_set_that_fits_a_cache_is_read_faster():
    assert PEAKS.memory_us(1000) == pytest.approx(10.0)
    assert PEAKS.memory_us(1001) == pytest.approx(100.1)


def test_a_conversion_stands_between_its_neighbours():
    first = layer("a", precision="int8", computes_in="int8", outputs=(form("q", "uint8", CHANNELS_LAST),))
    between = layer(
        "c", nodes=(), kind="Reorder", inputs=first.outputs, outputs=(form("f"),), operations=None, reason=""
    )
    last = layer("b", inputs=between.outputs)
    (found,) = conversions([first, between, last])
    assert (found.change, found.maker, found.readers) == ("uint8 -> float32", "a", ("b",))
    rows = rows_of((first, 1.0), (between, 2.0), (last, 1.0))
    assert [row.cause == CONVERSIONS for row in rows] == [False, True, False]
    assert all(row.conversions == (found,) for row in rows)


def test_a_layer_of_an_activation_says_whom_it_was_not_fused_into():
    conv, relu, other = layer("conv"), layer("relu", operations=None), layer("other")
    both = [conv, EngineLayer(name="relu", kind="Relu", nodes=("relu",), inputs=conv.outputs), other]
    types = (("conv", "Conv"), ("relu", "Relu"), ("other", "Conv"))
    rows = tuple(Layer(name=name, op_type=kind, precision="fp32", reason="") for name, kind in types)
    plan = make_plan("onnxruntime", layers=rows)
    assert missed_fusions(plan, both) == {"relu": ("not fused into 'conv': the library does not tell why",)}
    both[2] = layer("other", inputs=conv.outputs)
    assert "another layer reads its result too" in missed_fusions(plan, both)["relu"][0]
    assert relu.nodes == ("relu",)


def test_a_measured_precision_is_the_ratio_of_the_build_on_todays_time():
    found = layer(
        "a", precision="int8", computes_in="int8", median_us=10.0, attributes={"beside_us": {"fp16": 5.0}}
    )
    (row,) = rows_of((found, 30.0))
    got = predict(row, "fp16", PEAKS, None, "")
    assert (got.predicted_us, got.basis, got.gain_us) == (pytest.approx(15.0), AT_BUILD, pytest.approx(15.0))


def test_an_estimate_reaches_as_much_of_its_roofline():
    (row,) = rows_of((layer("a"), 200.0))  # 100 us by its roofline: half of it
    got = predict(row, "int8", PEAKS, None, "")
    assert got.basis == ESTIMATED
    assert got.predicted_us == pytest.approx(20.0), "10 us of products, half of which is reached"


def test_what_launches_bind_keeps_what_it_takes_beyond_its_roofline():
    (row,) = rows_of((layer("a", bytes_moved=8, operations=10), 5.0))
    got = predict(row, "int8", PEAKS, None, "")
    assert got.predicted_us == pytest.approx(5.0 + 0.02 - 0.1)


def test_what_is_not_known_is_not_predicted():
    (row,) = rows_of((layer("a", operations=None), 5.0))
    assert predict(row, "int8", PEAKS, None, "").predicted_us is None
    (row,) = rows_of((layer("a"), 5.0))
    assert predict(row, "fp16", PEAKS, None, "").gain_us is None
    assert predict(row, "fp32", PEAKS, None, "").gain_us == 0


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"operations": 10}, "products in fp32: excluded by 'a*'"),
        ({"operations": 10, "computes_in": "int8", "precision": "int8"}, "products in int8"),
        ({"operations": None, "nodes": (), "precision": "int8"}, "other layers in fp32, on int8 codes"),
        ({"operations": None, "nodes": (), "reason": ""}, "other layers in fp32"),
    ],
)
def test_what_the_time_of_a_layer_is_spent_on(fields: dict, cause: str):
    (row,) = rows_of((layer("a", **fields), 1.0))
    assert row.cause == cause


def test_a_layer_is_found_by_its_nodes_and_sources():
    rows = rows_of((layer("a", nodes=("one",), sources=("one", "old/two")), 1.0), (layer("b"), 1.0))
    for pattern in ("a", "one", "old/*"):
        assert [row.layer.name for row in select(rows, pattern)] == ["a"]
    with pytest.raises(UsageError, match="no layer of the engine matches 'c'"):
        select(rows, "c")
    with pytest.raises(UsageError) as caught:
        select(rows, "old/tow")
    assert caught.value.hint == "'old/two'"


def report_of(status: str) -> dict:
    latency, accuracy = {"median_ms": 2.0}, {"drop_ratio": 0.07}
    rows = [
        {"name": "fp", "status": "shipped", "latency": latency, "accuracy": None},
        {"name": "int", "status": status, "latency": {"median_ms": 0.5}, "accuracy": accuracy},
    ]
    return {"candidates": rows, "verdict": {"shipped": "fp"}}


def test_changes_come_by_gain_with_how_it_is_known():
    pairs = ((layer("a"), 200.0), (layer("b"), 0.5))
    rows, times = rows_of(*pairs), times_of(*pairs)
    plan = plan_of(*(row for row, _ in pairs), report=report_of("over budget"))
    batch = BatchTime(batch=8, now=1, speedup_ratio=2.0)
    found = cheapest_changes(plan, rows, times, PEAKS, batch)
    assert [round(change.gain_ratio, 2) for change in found] == [0.9, 0.75, 0.5]
    assert [change.basis.split(",")[0] for change in found] == ["estimated from the roofline", AT_BUILD, HERE]
    assert "a drop of 0.0700" in found[1].what and "batch 8 instead of 1" in found[2].what


def test_a_candidate_inside_the_budget_and_a_slower_batch_are_no_changes():
    pairs = ((layer("a", operations=None), 200.0),)
    plan = plan_of(pairs[0][0], report=report_of("passed over"))
    slower = BatchTime(batch=8, now=1, speedup_ratio=0.9)
    assert cheapest_changes(plan, rows_of(*pairs), times_of(*pairs), PEAKS, slower) == ()


def test_rules_that_no_option_changes_are_no_changes():
    ruled = layer("a", reason="gate of a squeeze-and-excite block")
    rows, times = rows_of((ruled, 200.0)), times_of((ruled, 200.0))
    assert cheapest_changes(plan_of(ruled, precision="int8"), rows, times, PEAKS, None) == ()
    (change,) = cheapest_changes(plan_of(ruled), rows, times, PEAKS, None)
    assert change.command == "quantrt build ... --int8"


def test_what_the_build_tried_is_no_estimate():
    a = layer("a", reason="fp is shipped")
    rows, times = rows_of((a, 200.0)), times_of((a, 200.0))
    tried = {**report_of("not faster"), "verdict": {"shipped": "fp"}}
    tried["candidates"][1]["precision"] = "int8"
    assert cheapest_changes(plan_of(a, report=tried), rows, times, PEAKS, None) == ()


def test_codes_that_are_slower_than_floats_are_a_change():
    slow = layer(
        "a", precision="int8", computes_in="int8", median_us=10.0, attributes={"beside_us": {"fp16": 4.0}}
    )
    plan = plan_of(slow, precision="int8")
    (change,) = cheapest_changes(plan, rows_of((slow, 10.0)), times_of((slow, 10.0)), PEAKS, None)
    assert change.gain_ratio == pytest.approx(0.6)
    assert change.command == "quantrt build ... --exclude 'a'" and change.basis.startswith(AT_BUILD)


def island(float_us: float = 5.0) -> list[tuple[EngineLayer, float]]:
    """Codes in the middle: first -> to codes -> conv, of `float_us` in floats -> to floats -> last."""
    codes = {"precision": "int8", "computes_in": "int8", "median_us": 4.0}
    none = {"nodes": (), "operations": None}
    return [
        (layer("first", operations=None), 3.0),
        (layer("q", kind="Convert", inputs=(form("first"),), outputs=(form("q", "uint8"),), **none), 2.0),
        (
            layer(
                "conv",
                inputs=(form("q", "uint8"),),
                outputs=(form("conv", "uint8"),),
                attributes={"beside_us": {"fp32": float_us}},
                **codes,
            ),
            4.0,
        ),
        (layer("d", kind="Convert", inputs=(form("conv", "uint8"),), outputs=(form("d"),), **none), 2.5),
        (layer("last", inputs=(form("d"),), operations=None), 3.0),
    ]


def test_codes_between_floats_cost_their_conversions():
    pairs = island()
    plan = plan_of(*(row for row, _ in pairs), precision="int8")
    (change,) = cheapest_changes(plan, rows_of(*pairs), times_of(*pairs), PEAKS, None)
    assert change.what == "'conv' in fp32 like all around it, so that 2 conversions go"
    assert change.gain_ratio == pytest.approx((2.0 + 2.5 - 1.0) / 14.5), "the product itself gets slower"
    assert change.command == "quantrt build ... --exclude 'conv'"


def test_codes_that_go_on_as_codes_are_no_island():
    pairs = [*island(), (layer("next", precision="int8", inputs=(form("conv", "uint8"),)), 1.0)]
    plan = plan_of(*(row for row, _ in pairs), precision="int8")
    assert cheapest_changes(plan, rows_of(*pairs), times_of(*pairs), PEAKS, None) == ()
    pairs = [*island(), (layer("other", precision="int8", inputs=(form("q", "uint8"),)), 1.0)]
    assert cheapest_changes(plan, rows_of(*pairs), times_of(*pairs), PEAKS, None) == ()


def test_codes_that_are_worth_their_conversions_stay():
    pairs = island(float_us=20.0)
    plan = plan_of(*(row for row, _ in pairs), precision="int8")
    assert cheapest_changes(plan, rows_of(*pairs), times_of(*pairs), PEAKS, None) == ()


def test_a_gpu_that_is_known_has_peaks_and_another_has_none():
    found = gpu_peaks({"gpu": [{"name": "NVIDIA H200"}]})
    assert found is not None and found.operations_per_us["int8"] == pytest.approx(
        gpu_named("H200").int8_tops * 0.75e6
    )
    assert gpu_peaks({"gpu": [{"name": "NVIDIA Test 9"}]}) is None
    assert gpu_peaks({}) is None
    assert gpu_peaks({"gpu": None, "planned_for": {"name": "T4"}}) is not None
