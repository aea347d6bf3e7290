# SPDX-License-Identifier: Apache-2.0
"""What candidates took at the build, held against the layers of the engine that was shipped."""

from typing import Any

from quantrt.plan.plan import Layer
from quantrt.report.built.candidate_times import together_us, told_layers, with_candidates
from quantrt.report.engine_layers.layer import EngineLayer
from quantrt.report.explain.not_shipped import describe_not_shipped
from tests.plans import make_plan

NODES = ("conv", "norm", "relu", "fc")
SHAPES = {"x": (1, 3)}


def candidate(name: str, layers: list[Any], precision: str = "fp32") -> dict[str, Any]:
    times = {"shapes": {"x": [1, 3]}, "layers": layers, "conversions": 0, "conversions_us": 0.0}
    return {"name": name, "precision": precision, "reason": "slower", "status": "", "layer_times": times}


def plan_of(*candidates: dict[str, Any]):
    rows = tuple(Layer(name=name, op_type="Conv", precision="fp32", reason="") for name in NODES)
    report = {"candidates": list(candidates), "verdict": {"shipped": "own"}}
    return make_plan("onnxruntime", layers=rows, report=report)


def layer(name: str, *nodes: str) -> EngineLayer:
    return EngineLayer(name=name, kind="Conv", nodes=nodes, precision="fp32", computes_in="fp32")


SPLIT = (layer("a", "conv"), layer("b", "norm", "relu"), layer("c", "fc"))
OWN = candidate("own", [[6.0, [0]], [2.0, [1, 2]], [5.0, [3]]])


def test_a_candidate_that_fuses_more_is_held_against_all_that_it_fuses():
    fused = candidate("int", [[4.0, [0, 1, 2]], [1.0, [3]]], "int8")
    found = with_candidates(plan_of(OWN, fused), SPLIT, SHAPES)
    assert [one.median_us for one in found] == [6.0, 2.0, 5.0]
    assert [one.attributes["beside_us"]["int8"] for one in found] == [3.0, 1.0, 1.0], "4 us in parts of 6 : 2"
    assert [one.attributes["beside_layers"] for one in found] == [{"int8": 2}, {"int8": 2}, {}]
    assert [one.rivals[0].median_us for one in found] == [3.0, 1.0, 1.0]
    assert "its part of 2 layers together" in found[1].rivals[0].reason


def test_a_candidate_that_fuses_less_is_added_up():
    whole = (layer("all", "conv", "norm", "relu"), layer("c", "fc"))
    own = candidate("own", [[4.0, [0, 1, 2]], [5.0, [3]]])
    split = candidate("int", [[3.0, [0]], [2.5, [1]], [0.5, [2]]], "int8")
    found = with_candidates(plan_of(own, split), whole, SHAPES)
    assert found[0].attributes["beside_us"] == {"int8": 6.0} and found[0].attributes["beside_layers"] == {}
    assert "beside_us" not in found[1].attributes, "nobody told what it took there"


def test_a_layer_that_was_not_timed_makes_no_figure():
    unknown = candidate("int", [[None, [0]], [2.0, [1, 2]]], "int8")
    found = with_candidates(plan_of(OWN, unknown), SPLIT, SHAPES)
    assert "beside_us" not in found[0].attributes and found[1].attributes["beside_us"] == {"int8": 2.0}
    assert together_us([1.0, None]) is None and together_us([]) is None and together_us([0.0]) == 0.0


def test_times_at_other_shapes_and_of_earlier_forms_say_nothing():
    fused = candidate("int", [[4.0, [0, 1, 2]]], "int8")
    assert with_candidates(plan_of(OWN, fused), SPLIT, {"x": (8, 3)}) == SPLIT
    earlier = {**OWN, "layer_times": {"shapes": {"x": [1, 3]}, "node_us": [6.0, 2.0, 0, 5.0]}}
    assert with_candidates(plan_of(earlier), SPLIT, SHAPES) == SPLIT


def test_what_was_not_shipped_is_slower_at_groups_of_nodes():
    own = candidate("own", [[4.0, [0, 1, 2]], [5.0, [3]]])
    split = candidate("int", [[3.0, [0]], [2.5, [1]], [0.5, [2]], [1.0, [3]]], "int8")
    (row,) = describe_not_shipped(plan_of(own, split))
    assert row["slower"] == [{"nodes": ["conv", "norm", "relu"], "more_us": 2.0}], "never -1 at conv alone"
    assert told_layers(own, NODES)[0] == (4.0, ("conv", "norm", "relu"))
