# SPDX-License-Identifier: Apache-2.0
"""Engines of different models are told apart, in words; forms of one model are not."""

from dataclasses import replace

import pytest

from quantrt.errors import UsageError
from quantrt.model.model import Fingerprint
from quantrt.plan.plan import Layer
from quantrt.report.engine_layers.same_model import check_same_model, model_difference
from quantrt.report.report import make_report
from tests.plans import make_plan

PLAN = make_plan("onnxruntime")
OTHER_GRAPH = Fingerprint("h" * 64, "w" * 64)


def test_one_graph_with_other_weights_is_one_model():
    assert model_difference(PLAN, replace(PLAN, fingerprint=Fingerprint("g" * 64, "v" * 64))) is None


def test_a_form_of_the_model_with_its_nodes_is_one_model():
    layers = (Layer(name="h", op_type="MatMul", precision="int8", reason=""),)
    assert model_difference(PLAN, replace(PLAN, fingerprint=OTHER_GRAPH, layers=layers)) is None


def test_a_free_size_may_be_any():
    fixed = tuple(replace(spec, shape=(4, *spec.shape[1:])) for spec in PLAN.inputs)
    assert model_difference(PLAN, replace(PLAN, fingerprint=OTHER_GRAPH, inputs=fixed)) is None


@pytest.mark.parametrize("what", ["inputs", "outputs"])
@pytest.mark.parametrize("change", [{"name": "z"}, {"dtype": "int64"}, {"shape": ("N", 33)}, {"shape": (1,)}])
def test_other_ports_are_named(what: str, change: dict):
    specs = getattr(PLAN, what)
    other = replace(PLAN, fingerprint=OTHER_GRAPH, **{what: (replace(specs[0], **change), *specs[1:])})
    assert model_difference(PLAN, other) == f"{what} {specs[0]} and {replace(specs[0], **change)}"
    more = replace(PLAN, fingerprint=OTHER_GRAPH, **{what: (*specs, replace(specs[0], name="more"))})
    assert "more" in (model_difference(PLAN, more) or "")


def test_graphs_without_a_common_node():
    layers = (Layer(name="k", op_type="MatMul", precision="int8", reason=""),)
    other = replace(PLAN, fingerprint=OTHER_GRAPH, layers=layers)
    assert model_difference(PLAN, other) == "graphs that have no node of one name"
    with pytest.raises(UsageError, match=r"cannot hold 'a\.qrt' against 'b\.qrt'.*different models"):
        check_same_model(PLAN, "a.qrt", other, "b.qrt")


def test_a_report_of_two_models_is_refused():
    layers = (Layer(name="k", op_type="MatMul", precision="int8", reason=""),)
    with pytest.raises(UsageError, match="different models"):
        make_report(PLAN, replace(PLAN, fingerprint=OTHER_GRAPH, layers=layers))
