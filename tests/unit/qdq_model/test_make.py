# SPDX-License-Identifier: Apache-2.0
"""Q/DQ models within a budget: what is left float, what is told, and what a file of it computes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import quantrt
from quantrt.config import AssignConfig, Budget, BuildConfig, CalibrationConfig, QuantizeConfig
from quantrt.errors import AccuracyError, DataError, UsageError
from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.prepare import Event
from quantrt.qdq_model.make import QdqModel, quantize_model
from quantrt.qdq_model.summary import why_outside
from quantrt.report.inspect.budget import BUDGET_KEY, read_budget
from quantrt.report.inspect.lint import describe_lint
from quantrt.report.inspect.model import describe_model
from tests.nets import resnet, samples
from tests.outlier_net import outlier_model

INPUTS = {"x": samples(24, 12)}
OTHERS = {"x": samples(32, 12)[24:]}
TARGETS = ("ort", "openvino", "tensorrt")
NOISE = Budget(metric="sqnr", max_drop_ratio=2e-3)


def config(**parts: Any) -> BuildConfig:
    return BuildConfig(calibration=CalibrationConfig(method="minmax"), **parts)


def made(target: str = "ort", model: Model | None = None, **options: Any) -> QdqModel:
    given = {"config": config(), "budget": NOISE, "calibration": INPUTS, "validation": INPUTS, **options}
    return quantize_model(model or outlier_model(), target=target, **given)


def noise_ratio(model: Model, path: Path, inputs: dict[str, np.ndarray]) -> float:
    """Of a file in a session without any option, beside the float model."""
    wanted = onnxruntime.InferenceSession(onnx_bytes(model)).run(None, inputs)[0].astype(np.float64)
    got = onnxruntime.InferenceSession(path).run(None, inputs)[0]
    return float(np.square(got - wanted).sum() / np.square(wanted).sum())


def onnx_bytes(model: Model) -> bytes:
    from quantrt.ir.split import split_weights

    proto, weights = split_weights(model.graph, inside=tuple(model.graph.graph.initializers))
    assert not weights
    return proto


def test_a_metric_may_be_a_function_and_fails_before_ranges_are_taken():
    def spread(outputs, labels):
        return outputs["y"].std()

    roomy = made(budget=Budget(metric=spread, max_drop_ratio=1.0))
    assert roomy.report is not None and roomy.report["metric"].endswith("<locals>.spread")
    events: list[Event] = []
    with pytest.raises(UsageError, match="<lambda>' is no number for the float model"):
        made(budget=Budget(metric=lambda outputs, labels: np.nan), on_event=events.append)
    assert {event.stage for event in events} == {"trying the metric"}


@pytest.mark.parametrize("target", TARGETS)
def test_the_layer_that_does_harm_is_float_and_the_rest_is_8_bit(target: str, tmp_path: Path):
    found = made(target)
    outcome, report = found.outcome, found.report
    assert outcome is not None and report is not None
    assert not outcome.whole.is_inside and outcome.best.is_inside
    products = [row for row in found.quantized.placement.decisions if row.op_type == "MatMul"]
    assert [row.is_int8 for row in products] == [True, False, True, True]
    assert products[1].reason.startswith("kept float: damage, in int8 it alone makes noise")
    (left,) = report["float_layers"]
    assert (left["name"], left["op_types"]) == (products[1].node, ["MatMul"])
    assert left["product_ratio"] == pytest.approx(1600 / (480 + 1600 + 1600 + 240))
    assert report["result"]["int8_product_ratio"] == pytest.approx(1 - left["product_ratio"])
    assert report["all_int8"]["int8_product_ratio"] == 1.0
    assert left["noise_ratio"] > 1e-2, "it alone is more than the budget"
    found.save(tmp_path / "q.onnx")
    assert noise_ratio(outlier_model(), tmp_path / "q.onnx", INPUTS) == pytest.approx(
        report["result"]["drop_ratio"], rel=0.02
    )


def test_a_model_inside_the_budget_stays_as_it_is_without_one():
    roomy = made(budget=Budget(metric="sqnr", max_drop_ratio=1.0))
    plain = made(budget=None, validation=None)
    assert plain.outcome is None and plain.report is None
    assert roomy.quantized.digest == plain.quantized.digest
    assert roomy.report is not None and roomy.report["rounds"] == []
    assert BUDGET_KEY not in plain.graph.metadata_props


def test_validation_data_alone_are_a_budget_of_one_percent():
    found = made(budget=None, validation=OTHERS)
    assert found.report is not None
    assert (found.report["metric"], found.report["max_drop_ratio"]) == ("cosine", 0.01)
    assert found.report["measured_on"] == "validation data" and found.report["samples"] == 8


def test_without_validation_data_calibration_samples_are_what_is_measured_on():
    found = made(validation=None)
    assert found.report is not None and found.report["measured_on"] == "calibration samples"


def test_what_is_inside_no_budget_is_an_error_that_says_what_was_reached():
    options: dict[str, Any] = {"calibration": INPUTS, "config": config()}
    with pytest.raises(AccuracyError) as caught:
        quantize_model(outlier_model(), budget=Budget(metric="sqnr", max_drop_ratio=0.0), **options)
    text = str(caught.value)
    assert "for ort is inside the budget" in text and "a drop of at most 0" in text
    assert "with everything in int8 that can be" in text and "try --recipe accurate" in text


def test_where_no_layer_may_go_back_the_whole_is_what_was_reached():
    with pytest.raises(AccuracyError, match="not tried") as caught:
        made(config=config(assign=AssignConfig(mixed=False)))
    report = caught.value.report
    assert report is not None and not report["passed"]
    assert report["reason"].startswith("not tried") and report["rounds"] == []
    assert report["result"] == report["all_int8"]


@pytest.mark.parametrize(("drop", "proposed"), [(1.172e-5, "1.3e-05"), (0.0433, "0.048"), (0.95, None)])
def test_a_budget_that_would_do_is_proposed(drop: float, proposed: str | None):
    whole = made(validation=None).outcome.whole
    lost = replace(whole, accuracy=replace(whole.accuracy, drop_ratio=drop))
    outcome = replace(made(validation=None).outcome, whole=lost, searched=None)
    hint = why_outside(outcome).hint
    assert hint.startswith("--exclude" if proposed is None else f"--max-drop {proposed}, --exclude")


def test_rounds_are_as_many_as_were_asked_for_and_told():
    events: list[Event] = []
    found = made(config=config(assign=AssignConfig(assign_rounds=1)), on_event=events.append)
    assert found.outcome.searched is not None and len(found.outcome.searched.rounds) == 1
    stages = list(dict.fromkeys(event.stage for event in events))
    assert stages == ["calibrating", "checking", "measuring damage", "leaving layers float"]
    rounds = [event for event in events if event.stage == "leaving layers float"]
    assert [(event.done, event.total) for event in rounds] == [(0, 1), (1, 1)]


def test_exclusions_hold_beside_a_budget():
    name = made().quantized.placement.decisions[0].node
    found = made(config=config(quantize=QuantizeConfig(exclude=(name,))))
    rows = {row.node: row for row in found.quantized.placement.decisions}
    assert rows[name].reason == f"excluded by '{name}'"
    assert name not in {row["name"] for row in found.report["float_layers"]}, "nobody had to find it"
    assert found.outcome.best.is_inside


def test_a_file_says_what_came_of_its_budget(tmp_path: Path):
    found, path = made("tensorrt"), tmp_path / "q.onnx"
    found.save(path)
    assert read_budget({one.key: one.value for one in onnx.load(path).metadata_props}) == found.report
    assert describe_model(load_model(path))["budget"] == found.report
    assert describe_lint(path, "tensorrt")["passed"]
    assert describe_model(load_model(path))["pairs"]["findings"] == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"metric": "top1"}'])
def test_what_is_no_record_of_a_budget_is_passed_over(text: str):
    assert read_budget({BUDGET_KEY: text}) is None and read_budget({}) is None


def test_random_data_measure_no_accuracy():
    options = BuildConfig(calibration=CalibrationConfig(calib_random=True))
    with pytest.raises(UsageError, match="without data to measure it on"):
        quantize_model(outlier_model(), config=options, budget=NOISE)


def test_there_are_ranges_of_this_model():
    with pytest.raises(UsageError, match="without ranges"):
        quantize_model(outlier_model())
    from quantrt.calibrate.collect import collect
    from quantrt.calibrate.dataset import open_dataset
    from quantrt.prepare import observable

    other = resnet()
    data = open_dataset({"x": samples(4, 3, 16, 16)}, other.inputs)
    stats = collect(other, observable(other), data, CalibrationConfig())
    with pytest.raises(DataError, match="another model"):
        quantize_model(outlier_model(), stats=stats)


def test_it_is_public():
    assert quantrt.quantize_model is quantize_model and quantrt.QdqModel is QdqModel


def test_what_it_shows_is_no_weights():
    assert repr(made(target="tensorrt")).startswith("<QdqModel for tensorrt: ")
    assert repr(made(target="tensorrt")).endswith(" weights quantized>")
