# SPDX-License-Identifier: Apache-2.0
"""What `inspect` says of an engine."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from quantrt.cli.json_text import json_text
from quantrt.plan.serialize import load_plan
from quantrt.report.inspect.engine import describe_engine, show_engine


def described(path: Path) -> dict[str, object]:
    return describe_engine(load_plan(path), path)


def test_facts(make_engine: Callable[..., Path]):
    path = make_engine("onnxruntime")
    data = described(path)
    assert (data["precision"], data["library"]) == ("fp32", "onnxruntime")
    assert data["precision_counts"] == {"int8": 1, "fp32": 1}
    assert data["file_bytes"] == path.stat().st_size > data["model_bytes"]
    assert data["layers"][0] == {
        "name": "mul",
        "op_type": "Mul",
        "precision": "int8",
        "reason": "weights are constant",
        "sources": ["a"],
    }
    assert json.loads(json_text(data)) == data


def test_layers_show_their_reasons(make_engine: Callable[..., Path], capsys: pytest.CaptureFixture[str]):
    data = described(make_engine("onnxruntime"))
    show_engine(data)
    assert "excluded by name" not in capsys.readouterr().out
    show_engine(data, layers=True)
    out = capsys.readouterr().out
    assert "excluded by name" in out
    assert "1 int8, 1 fp32" in out
    assert max(map(len, out.splitlines()[1:])) <= 100


def test_uncalibrated_is_in_the_first_line(
    make_engine: Callable[..., Path], capsys: pytest.CaptureFixture[str]
):
    show_engine(described(make_engine("onnxruntime", is_calibrated=False)))
    assert "uncalibrated" in capsys.readouterr().out.replace("\n", " ").split("input")[0]
