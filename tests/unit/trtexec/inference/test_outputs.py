# SPDX-License-Identifier: Apache-2.0
"""Outputs and times as trtexec prints and writes them."""

import json
from pathlib import Path

import numpy as np

from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.inference.outputs import (
    output_lines,
    outputs_json,
    raw_name,
    times_json,
    write_json,
    write_raw,
)
from tests.unit.trtexec.reports.test_trace import query

OUTPUTS = {"y": np.array([[1.5, -2.0], [np.nan, 1e-8]], np.float32), "n": np.array(3, np.int64)}


def test_a_line_per_row():
    assert list(output_lines(OUTPUTS)) == [
        "Output Tensors:",
        "y: (2x2)",
        "1.5 -2",
        "nan 1e-08",
        "n: (scalar)",
        "3",
    ]


def test_an_empty_output_has_no_rows():
    assert list(output_lines({"y": np.zeros((2, 0), np.float32)})) == ["Output Tensors:", "y: (2x0)"]


def test_the_file_of_outputs_is_strict_json(tmp_path: Path):
    write_json(tmp_path / "o.json", outputs_json(OUTPUTS))
    found = json.loads((tmp_path / "o.json").read_text(), parse_constant=lambda word: 1 / 0)
    assert found == [
        {"name": "y", "dimensions": "2x2", "values": [1.5, -2.0, "nan", float(np.float32(1e-8))]},
        {"name": "n", "dimensions": "scalar", "values": [3]},
    ]


def test_times_have_the_fields_of_real_ones(shared_data, tmp_path: Path):
    real = json.loads(
        shared_data("trtexec_json/pytorch/resnet/A100/fp32/resnet.onnx.engine.timing.json").read_text()
    )
    write_json(tmp_path / "t.json", times_json([query(0.0), query(5.0)]))
    own = json.loads((tmp_path / "t.json").read_text())
    assert [list(row) for row in own] == [list(real[0])] * 2
    for row in own:
        assert row["latencyMs"] == row["h2dMs"] + row["computeMs"] + row["d2hMs"]


def test_names_of_raw_files():
    assert raw_name("images", "input", "float32", (1, 3)) == "images.input.1.3.Float.raw"
    assert raw_name("a/b:0", "output", "int64", ()) == "a_b_0.output.scalar.Int64.raw"


def test_raw_files_hold_the_array(tmp_path: Path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    (path,) = write_raw({"x": array}, (TensorSpec("x", "float32", (3, 2)),), "output", tmp_path)
    assert np.array_equal(np.fromfile(path, np.float32).reshape(3, 2), array)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_raw_files_of_another_layout_are_named_after_the_models_dimensions(tmp_path: Path):
    array = np.arange(24, dtype=np.int8).reshape(1, 2, 4, 3)
    spec = TensorSpec("x", "int8", ("N", 2, 4, 3), 0.5, "nhwc")
    (path,) = write_raw({"x": array}, (spec,), "input", tmp_path)
    assert path.name == "x.input.1.3.2.4.Int8.raw"
    np.testing.assert_array_equal(np.fromfile(path, np.int8), array.ravel())
