# SPDX-License-Identifier: Apache-2.0
"""What `inspect` says of a model."""

import json
from pathlib import Path

import onnx.parser
import pytest

from quantrt.cli.json_text import json_text
from quantrt.model.load import load_model
from quantrt.report.inspect.model import describe_model, show_model

TEXT = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,3,8,8] image) => (float[n,4,8,8] y)
<float[4,3,1,1] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
{ a = Identity(image)
  h = Conv(a, w)
  y = Relu(h) }"""


@pytest.fixture
def data(tmp_path: Path) -> dict[str, object]:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    return describe_model(load_model(tmp_path / "m.onnx"))


def test_facts(data: dict[str, object]):
    assert data["operators"] == {"Conv": 1, "Relu": 1}
    assert data["parameters"] == 12
    assert data["inputs"] == [
        {"name": "image", "dtype": "float32", "shape": ["n", 3, 8, 8], "text": "image float32 [n,3,8,8]"}
    ]
    assert [node["op_type"] for node in data["nodes"]] == ["Conv", "Relu"]
    assert any("change nothing" in change for change in data["changes"])
    assert json.loads(json_text(data)) == data


def test_text(data: dict[str, object], capsys: pytest.CaptureFixture[str]):
    show_model(data)
    short = capsys.readouterr().out
    show_model(data, layers=True)
    long = capsys.readouterr().out
    assert "image float32 [n,3,8,8]" in short
    assert data["fingerprint"]["weights"] in short
    assert len(long) > len(short)
    assert max(map(len, long.splitlines())) <= 100
