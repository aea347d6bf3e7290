# SPDX-License-Identifier: Apache-2.0
"""A trained keyword spotter within a budget, for every target, in ONNX Runtime and in OpenVINO."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import openvino
import pytest

from quantrt.config import Budget
from quantrt.ir.session import float_session
from quantrt.qdq_model.make import quantize_model
from quantrt.reference.metrics import sqnr_db
from quantrt.report.inspect.lint import describe_lint

SAMPLES = 96
BUDGET = Budget(metric="sqnr", max_drop_ratio=10**-3.5)
"""35 dB, where all of int8 has under 30."""

LIBRARIES_DB = 30.0
"""OpenVINO beside ONNX Runtime on one file of 35 dB: each rounds sums of its own, so not to the last bit."""


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    """Seeded coefficients with the spread and slow change of MFCCs, [96, 1, 49, 10]."""
    steps = np.random.default_rng(0).standard_normal((SAMPLES, 1, 49, 10)).astype(np.float32)
    smooth = (steps + np.roll(steps, 1, 2) + np.roll(steps, 2, 2)) / np.float32(3**0.5)
    spread = np.array([30.0, *(12.0 / np.arange(1, 10))], np.float32)
    return smooth * spread - np.array([20.0] + [0.0] * 9, np.float32)


@pytest.mark.parametrize("target", ["ort", "openvino", "tensorrt"])
def test_the_file_is_inside_the_budget_where_it_runs(
    target: str, features: np.ndarray, shared_data, tmp_path: Path
):
    source, path = shared_data("models/kws_dscnn.onnx"), tmp_path / "q.onnx"
    made = quantize_model(
        source, target=target, calibration={"input": features}, validation={"input": features}, budget=BUDGET
    )
    made.save(path)
    report = made.report
    assert report is not None and report["all_int8"]["drop_ratio"] > BUDGET.max_drop_ratio
    floats = [row["name"] for row in report["float_layers"]]
    assert "Conv_1" in floats, "after the first convolution, with weights of few inputs"
    assert 0.3 < report["result"]["int8_product_ratio"] < 1.0
    wanted = onnxruntime.InferenceSession(source).run(None, {"input": features})[0]
    # Of a file for another runtime a session without options would make more int8 than it says.
    session = onnxruntime.InferenceSession(path) if target == "ort" else float_session(ir.load(path))
    got = session.run(None, {"input": features})[0]
    assert sqnr_db(wanted, got) >= 35.0
    assert report["result"]["sqnr_db"] == pytest.approx(sqnr_db(wanted, got), abs=0.1)
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert sqnr_db(wanted, next(iter(compiled({"input": features}).values()))) >= LIBRARIES_DB
    assert target != "tensorrt" or describe_lint(path, "tensorrt")["passed"]
