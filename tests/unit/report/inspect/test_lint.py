# SPDX-License-Identifier: Apache-2.0
"""Findings of files, as JSON and as text; what placing pairs anew would change."""

import json

import pytest

from quantrt.errors import ModelError
from quantrt.model.file.save import save_model
from quantrt.model.load import load_model, make_model
from quantrt.quantize.qdq.unquantized import without_pairs
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.tensorrt import TENSORRT
from quantrt.reference.metrics import sqnr_db
from quantrt.report.inspect.lint import describe_lint, show_lint
from quantrt.report.inspect.model import describe_model, show_model
from tests.nets import quantized, resnet, run_ort, samples

INPUTS = {"x": samples(4, 3, 16, 16)}


def test_a_file_for_another_runtime_fails_and_says_why(ort_file, capsys):
    data = describe_lint(ort_file, "tensorrt")
    assert not data["passed"]
    assert data["errors"] == sum(row["level"] == "error" for row in data["findings"]) > 0
    json.dumps(data)
    show_lint(data, layers=False)
    text = capsys.readouterr().out
    assert "error zero-point" in text
    assert "Quantization Schemes" in text
    assert "and " in text and "more: --layers lists all" in text
    assert text.splitlines()[-1].startswith("FAILED")


def test_a_file_for_tensorrt_passes(tmp_path, capsys):
    path = tmp_path / "trt.onnx"
    save_model(write(quantized(resnet(), TENSORRT, INPUTS)), path)
    data = describe_lint(path, "tensorrt")
    assert data["passed"] and data["findings"] == []
    show_lint(data, layers=True)
    assert "PASSED" in capsys.readouterr().out


def test_a_quantized_model_is_told_of_with_what_other_places_give(shared_data, capsys):
    path = shared_data("qdq_models/ort_cifar10_resnet20_perchannel.qdq.onnx")
    data = describe_model(load_model(path))
    pairs = data["pairs"]
    assert {row["rule"] for row in pairs["findings"]} == {"split"}
    counts = {row["what"]: (row["as_given"], row["placed_anew"]) for row in pairs["replaced"]}
    assert counts["convolutions of codes"] == (19, 19)
    show_model(data, layers=True)
    text = capsys.readouterr().out
    assert "'conv_1_QuantizeLinear' (QuantizeLinear): stands between 'Conv_1' and 'Relu_2' (Relu)" in text


def test_a_float_model_has_no_pairs(tmp_path):
    path = tmp_path / "float.onnx"
    save_model(resnet().graph, path)
    assert describe_model(load_model(path))["pairs"] is None
    with pytest.raises(ModelError, match="it is a float model") as caught:
        describe_lint(path, "tensorrt")
    assert "quantrt quantize" in (caught.value.hint or "")


def test_without_its_pairs_a_model_is_near_its_float_one(ort_file):
    model = resnet()
    graph = without_pairs(load_model(ort_file).graph)
    assert not any("Quantize" in node.op_type for node in graph.graph)
    assert [value.name for value in graph.graph.outputs] == [spec.name for spec in model.outputs]
    (want,), (got,) = run_ort(model.graph, INPUTS), run_ort(make_model(graph).graph, INPUTS)
    assert sqnr_db(want, got) > 35  # weights alone are rounded
