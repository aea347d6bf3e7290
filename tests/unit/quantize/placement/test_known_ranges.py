# SPDX-License-Identifier: Apache-2.0
"""Placement where not every activation has a range."""

import pytest

from quantrt.config import QuantizeConfig
from quantrt.model.model import Model
from quantrt.quantize.placement.known_ranges import KnownPlacement, place_known
from quantrt.quantize.placement.placement import place
from quantrt.quantize.target import Target
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import int8_nodes, reason, resnet

ALL = (*TARGETS, CUDA)


@pytest.fixture
def model() -> Model:
    return resnet()


def without(model: Model, target: Target, *names: str, **options: object) -> KnownPlacement:
    wanted = place(model.graph, target).values
    return place_known(model.graph, target, QuantizeConfig(**options), wanted - set(names), "x.cache")


def node_names(model: Model) -> dict[str, str]:
    """Nodes by what they make."""
    return {node.outputs[0].name: node.name for node in model.graph.graph}


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_with_every_range_nothing_changes(model: Model, target: Target):
    known = without(model, target)
    assert known.placement == place(model.graph, target)
    assert known.costs == {} and known.others == ()
    assert known.wanted == known.placement.values


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_no_range_is_needed_that_is_not_known(model: Model, target: Target):
    for name in place(model.graph, target).values:
        known = without(model, target, name)
        assert name not in known.placement.values
        assert known.costs[name], name
        lost = {node for nodes in known.costs.values() for node in nodes} | set(known.others)
        assert int8_nodes(place(model.graph, target)) - lost == int8_nodes(known.placement)
        assert not lost & int8_nodes(known.placement)


def test_what_reads_a_value_without_range_stays_float_and_says_why(model: Model):
    made_by = node_names(model)
    known = without(model, OPENVINO, "r1")
    assert known.costs == {"r1": (made_by["c2"],)}
    assert reason(known.placement, made_by["c2"]) == "no range for 'r1' in x.cache"
    assert made_by["sum"] in known.others, "the sum is that of an 8-bit convolution no more"
    assert made_by["c1"] in int8_nodes(known.placement), "its own input has a range"


def test_what_makes_a_value_without_range_stays_float_where_kernels_make_codes(model: Model):
    made_by = node_names(model)
    known = without(model, ORT, "r1")
    assert set(known.costs["r1"]) >= {made_by["c1"], made_by["c2"]}
    assert reason(known.placement, made_by["c1"]) == "no range for 'r1' in x.cache"
    assert made_by["c3"] in int8_nodes(known.placement)


def test_what_is_excluded_anyway_costs_nothing(model: Model):
    conv = node_names(model)["c2"]
    known = without(model, OPENVINO, "r1", exclude=(conv,))
    assert conv not in known.costs.get("r1", ())
    assert reason(known.placement, conv) == f"excluded by '{conv}'"


def test_without_any_range_everything_is_float(model: Model):
    for target in ALL:
        known = without(model, target, *place(model.graph, target).values)
        assert known.placement.values == frozenset()
        assert not any(decision.is_int8 for decision in known.placement.decisions)
