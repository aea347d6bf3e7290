# SPDX-License-Identifier: Apache-2.0
"""What missing ranges cost, from made-up layer times."""

import json
from dataclasses import replace
from typing import Any

import pytest

from quantrt.errors import UsageError
from quantrt.plan.plan import Layer
from quantrt.report.built.missing_times import missing_times, missing_times_of
from tests.nets import resnet
from tests.plans import make_plan

NAMES = ["conv1", "relu1", "conv2", "conv3"]
SHAPES = {"x": [1, 3, 8, 8]}


def row(name: str, layers: list, median_ms: float = 1.0, **fields: Any) -> dict[str, Any]:
    library, precision = name.split()
    return {
        "name": name,
        "library": library,
        "precision": precision,
        "float_precision": "fp32",
        "latency": {"median_ms": median_ms},
        "layer_times": {"shapes": SHAPES, "layers": layers, "conversions": 0, "conversions_us": 0.0},
        **fields,
    }


FLOAT = row("openvino fp32", [[100.0, [0, 1]], [60.0, [2]], [40.0, [3]]])
INT8 = row("openvino int8", [[25.0, [0, 1]], [20.0, [2]], [10.0, [3]]])
MISSING = {"t1": {"openvino": ("conv1",), "ort": ("conv1", "conv2")}, "t2": {"openvino": ("conv3", "conv2")}}


def test_what_was_8_bit_costs_the_difference_to_floats():
    found = missing_times(MISSING, [FLOAT, INT8], NAMES, {})
    assert found == {
        "t1": {"library": "openvino", "cost_us": 75.0, "of_us": 55.0},
        "t2": {"library": "openvino", "cost_us": 70.0, "of_us": 55.0},
    }


def test_what_is_float_already_costs_what_8_bits_save_elsewhere():
    partial = row("openvino int8", [[100.0, [0, 1]], [20.0, [2]], [10.0, [3]]])
    found = missing_times({"t1": MISSING["t1"]}, [FLOAT, partial], NAMES, {"openvino int8": ["conv1"]})
    assert found["t1"]["cost_us"] == pytest.approx(100.0 * (1 - 30 / 100))


def test_floats_of_its_own_library_and_shapes_count():
    other = row("onnxruntime fp32", [[999.0, [0, 1]], [999.0, [2]], [999.0, [3]]])
    assert missing_times(MISSING, [other, FLOAT, INT8], NAMES, {})["t1"]["cost_us"] == 75.0
    larger = {**FLOAT, "layer_times": {**FLOAT["layer_times"], "shapes": {"x": [8, 3, 8, 8]}}}
    assert missing_times(MISSING, [larger, INT8], NAMES, {}) == {}
    assert missing_times(MISSING, [FLOAT], NAMES, {}) == {}
    assert missing_times(MISSING, [FLOAT, {**INT8, "layer_times": None}], NAMES, {}) == {}
    slower = row("openvino int8", [[125.0, [0, 1]], [20.0, [2]], [10.0, [3]]])
    assert "t1" not in missing_times(MISSING, [FLOAT, slower], NAMES, {}), "it costs nothing"
    unknown = row("openvino int8", [[None, [0, 1]], [20.0, [2]], [10.0, [3]]])
    assert "t1" not in missing_times(MISSING, [FLOAT, unknown], NAMES, {})


def test_what_left_the_race_is_told_too_behind_what_was_timed_to_the_end():
    left = {**INT8, "latency": None}
    assert missing_times(MISSING, [FLOAT, left], NAMES, {})["t1"]["cost_us"] == 75.0
    timed = row("onnxruntime int8", [[50.0, [0, 1]], [20.0, [2]], [10.0, [3]]])
    found = missing_times(MISSING, [FLOAT, left, timed], NAMES, {})["t1"]
    assert (found["library"], found["cost_us"]) == ("onnxruntime", 90.0)


def test_an_engine_tells_its_layers_and_those_that_were_float():
    model = resnet()
    layers = tuple(
        Layer(
            name=name,
            op_type="Conv",
            precision="fp32" if name == "conv1" else "int8",
            reason="for the test",
            sources=(name,),
        )
        for name in NAMES
    )
    report = {"candidates": [FLOAT, INT8], "verdict": {"shipped": "openvino int8"}}
    plan = make_plan("onnxruntime")
    plan = replace(plan, fingerprint=model.fingerprint, layers=layers, report=report, precision="int8")
    found = missing_times_of(plan, MISSING, model)
    assert found["t2"]["cost_us"] == 70.0
    assert found["t1"]["cost_us"] == pytest.approx(25.0 * (1 - 30 / 100), abs=0.1)
    assert json.loads(json.dumps(found)) == found
    with pytest.raises(UsageError, match="another model"):
        missing_times_of(make_plan("onnxruntime"), MISSING, model)
    with pytest.raises(UsageError, match="no 8-bit candidate"):
        missing_times_of(replace(plan, report={"candidates": [FLOAT]}), MISSING, model)
