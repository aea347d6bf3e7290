# SPDX-License-Identifier: Apache-2.0
"""A build report as tables."""

from typing import Any

import pytest

from quantrt.report.built.text import candidates_table, most_text, reason_text, verdict_table
from quantrt.report.tables import show


def candidate(name: str, **facts: Any) -> dict[str, Any]:
    row = {"name": name, "status": "passed over", "reason": "slower", "size_bytes": 1000}
    return {**row, "latency": None, "against_float": None, "accuracy": None, **facts}


ACCURACY = {"metric": "top1", "float_score": 0.99, "score": 0.98, "drop_ratio": 0.0101, "sqnr_db": 30.5}
PAIR = {"ratio": 0.25, "lo": 0.2, "hi": 0.3, "rounds": 30}
INT8 = candidate(
    "ort int8", status="shipped", latency={"median_ms": 1.0}, against_float=PAIR, accuracy=ACCURACY
)
FLOAT = candidate("ov fp32", status="baseline", reason="the fastest", latency={"median_ms": 4.0})


def report(*candidates: dict[str, Any], shipped: str) -> dict[str, Any]:
    return {
        "model": {"file_bytes": 4000},
        "candidates": list(candidates),
        "verdict": {
            "shipped": shipped,
            "baseline": "ov fp32",
            "reason": "because",
            "checked_on": "some data",
        },
    }


def lines(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    out = capsys.readouterr().out.splitlines()
    assert max(map(len, out)) <= 100
    return {line.split("  ")[0].strip(): line for line in out}


def test_the_engine_beside_the_float_model(capsys: pytest.CaptureFixture[str]):
    show(verdict_table(report(INT8, FLOAT, shipped="ort int8"), 1100, {"int8": 10, "fp32": 3}))
    rows = lines(capsys)
    assert rows["top1"].split()[1:] == ["0.9900", "0.9800", "drop", "0.0101"]
    assert rows["latency"].split()[1:] == ["4", "ms", "1", "ms", "4.00x", "as", "fast"]
    assert "0.28 of it" in rows["file size"]
    assert rows["layers in int8"].split()[-2:] == ["0", "10"]
    assert rows["layers in fp32"].split()[-2:] == ["13", "3"]


def test_a_bound_is_told_as_one(capsys: pytest.CaptureFixture[str]):
    """The float model ran on some of the samples: what it scores, and what is lost, is at most so much."""
    bound = {**INT8, "accuracy": {**ACCURACY, "samples": 2000, "float_samples": 500}}
    show(verdict_table(report(bound, FLOAT, shipped="ort int8"), 1100, {"int8": 10, "fp32": 3}))
    assert lines(capsys)["top1"].split()[1:] == ["<=", "0.9900", "0.9800", "drop", "<=", "0.0101"]
    show(candidates_table(report(bound, FLOAT, shipped="ort int8")))
    assert "<= 0.0101" in lines(capsys)["ort int8"]
    assert most_text({**ACCURACY, "samples": 2000, "float_samples": 2000}) == ""


def test_a_float_engine_has_no_accuracy_rows(capsys: pytest.CaptureFixture[str]):
    made = report(candidate("ort int8"), {**FLOAT, "status": "shipped"}, shipped="ov fp32")
    show(verdict_table(made, 4100, {"fp32": 13}))
    rows = lines(capsys)
    assert "top1" not in rows
    assert "output SQNR" not in rows
    assert reason_text(made) == "because"
    assert reason_text(report(INT8, FLOAT, shipped="ort int8")) == "because (accuracy checked on some data)"


def test_an_engine_that_is_the_model_as_given_has_the_same_layers(capsys: pytest.CaptureFixture[str]):
    made = report({**FLOAT, "status": "shipped"}, shipped="ov fp32")
    show(verdict_table(made, 4100, {"int8": 10, "fp32": 3}))
    rows = lines(capsys)
    assert rows["layers in int8"].split()[3:] == ["10", "10"]
    assert rows["layers in fp32"].split()[3:] == ["3", "3"]


def test_null_in_a_report_is_infinity(capsys: pytest.CaptureFixture[str]):
    same = {
        **ACCURACY,
        "metric": "sqnr",
        "float_score": None,
        "score": None,
        "sqnr_db": None,
        "drop_ratio": 0.0,
    }
    show(verdict_table(report({**INT8, "accuracy": same}, FLOAT, shipped="ort int8"), 1, {"int8": 1}))
    assert "same" in lines(capsys)["output SQNR"]
    lost = {**ACCURACY, "drop_ratio": None}
    show(candidates_table(report({**INT8, "accuracy": lost}, FLOAT, shipped="ort int8")))
    assert "inf" in lines(capsys)["ort int8"]


def test_every_candidate_has_its_reason(capsys: pytest.CaptureFixture[str]):
    rejected = {"name": "x bf16", "status": "rejected", "reason": "no such instruction"}
    show(candidates_table(report(INT8, FLOAT, candidate("ort fp32"), rejected, shipped="ort int8")))
    rows = lines(capsys)
    assert rows["ort int8"].endswith("shipped")
    assert rows["ov fp32"].endswith("baseline: the fastest")
    assert rows["ort fp32"].endswith("passed over: slower")
    assert rows["x bf16"].endswith("cannot run: no such instruction")
