# SPDX-License-Identifier: Apache-2.0
"""A layer in another precision, from another engine's times."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from quantrt.report.engine_layers.layer import EngineLayer
from quantrt.report.explain.against import Against, Beside, layers_beside
from quantrt.report.explain.rows import LayerRow
from quantrt.report.explain.times import Times
from quantrt.report.explain.what_if import predict


def layer(name: str, *nodes: str) -> EngineLayer:
    return EngineLayer(
        name=name, kind="Conv", nodes=nodes, sources=nodes, precision="fp32", computes_in="fp32"
    )


def row(found: EngineLayer, time_us: float) -> LayerRow:
    return LayerRow(
        layer=found,
        time_us=time_us,
        share_ratio=1.0,
        bound="",
        roofline_us=None,
        reached_ratio=None,
        cause="",
        conversions=(),
        missed=(),
    )


def times_of(layer_us: Mapping[str, float]) -> Times:
    return Times(layer_us=layer_us, basis="", method="", engine_us=None)


def against(pairs: Sequence[tuple[EngineLayer, float]]) -> Against:
    return Against(
        name="o.qrt",
        precision="int8",
        layers=tuple(one for one, _ in pairs),
        times=times_of({one.name: time_us for one, time_us in pairs}),
        conversions_us=0.0,
    )


def test_the_same_nodes_in_another_engine_are_measured():
    here = layer("here", "conv", "relu")
    (beside,) = layers_beside(
        [here], times_of({"here": 6.0}), against([(layer("both", "conv", "relu"), 4.0)])
    )
    found = predict(row(here, 6.0), "int8", None, beside, "o.qrt")
    assert (found.predicted_us, found.gain_us, found.basis) == (4.0, 2.0, "measured here, in o.qrt")


def test_what_is_measured_today_counts_before_the_build():
    here = replace(layer("here", "conv"), median_us=3.0, attributes={"beside_us": {"int8": 1.0}})
    assert predict(row(here, 6.0), "int8", None, None, "").predicted_us == 2.0
    assert predict(row(here, 6.0), "int8", None, Beside(("here",), ("o",), 6.0, 5.0), "o").predicted_us == 5.0


def test_a_layer_that_is_split_there_takes_what_all_its_parts_do():
    here = layer("here", "conv", "relu")
    other = against([(layer("a", "conv"), 3.0), (layer("b", "relu"), 2.0)])
    (beside,) = layers_beside([here], times_of({"here": 6.0}), other)
    assert predict(row(here, 6.0), "int8", None, beside, "o.qrt").predicted_us == 5.0


def test_layers_that_are_fused_there_share_its_time_by_their_own():
    conv, relu = layer("c", "conv"), layer("r", "relu")
    times, other = times_of({"c": 6.0, "r": 2.0}), against([(layer("both", "conv", "relu"), 4.0)])
    (beside,) = layers_beside([conv, relu], times, other)
    assert beside == Beside(("c", "r"), ("both",), 8.0, 4.0)
    found = [
        predict(row(conv, 6.0), "int8", None, beside, "o"),
        predict(row(relu, 2.0), "int8", None, beside, "o"),
    ]
    assert [one.predicted_us for one in found] == [3.0, 1.0], "4.0 together"
    assert found[0].basis == "measured here, in o, of 2 layers together"


def test_a_layer_without_a_time_makes_its_group_unknown():
    conv, relu = layer("c", "conv"), layer("r", "relu")
    (beside,) = layers_beside(
        [conv, relu], times_of({"c": 6.0}), against([(layer("b", "conv", "relu"), 4.0)])
    )
    assert beside.time_us is None
    found = predict(row(conv, 6.0), "int8", None, beside, "o")
    assert found.predicted_us is None and "no estimate" in found.basis


def test_layers_that_one_engine_has_alone_are_not_beside_anything():
    other = against([(layer("there", "new"), 1.0)])
    assert layers_beside([layer("here", "old")], times_of({"here": 1.0}), other) == ()
