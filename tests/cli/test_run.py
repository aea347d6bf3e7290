# SPDX-License-Identifier: Apache-2.0
"""`quantrt run`: where outputs of samples go that do not fit into one array."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

CHOSEN = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,m] x) => (float[k] found, float[n,m] twice)
{ two = Constant<value = float {2.0}>()
  twice = Mul(x, two)
  flat = Constant<value = int64[1] {-1}>()
  all = Reshape(x, flat)
  is_positive = Greater(all, zero)
  found = Compress(all, is_positive) }"""


@pytest.fixture
def chosen(folder: Path) -> Path:
    """chosen.onnx, one of whose outputs has a row for each positive value; and a folder of three samples."""
    model = onnx.parser.parse_model(CHOSEN)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((), np.float32), "zero"))
    onnx.save(model, "chosen.onnx")
    Path("samples").mkdir()
    for index, row in enumerate([[1, -1], [1, 2, 3], [-1, -2]]):
        np.savez(f"samples/{index}.npz", x=np.array([row], np.float32))
    return folder


def test_a_folder_gets_a_file_for_every_sample(chosen: Path, quantrt_json):
    data = quantrt_json("run", "chosen.onnx", "--inputs", "samples", "-o", "out/")
    assert data["samples"] == 3
    assert data["notes"] == ["shapes are those of the first sample; others differ in 'found', 'twice'"]
    assert sorted(path.name for path in Path("out").iterdir()) == ["000000.npz", "000001.npz", "000002.npz"]
    found = []
    for index, wide in enumerate((2, 3, 2)):
        with np.load(f"out/00000{index}.npz") as arrays:
            assert arrays["twice"].shape == (1, wide)
            found.append(arrays["found"].tolist())
    assert found == [[1.0], [1.0, 2.0, 3.0], []]


def test_batches_are_taken_apart(folder: Path, quantrt_json):
    quantrt_json("run", "model.onnx", "--inputs", "valid.npz", "--batch-size", "8", "-o", "out")
    quantrt_json("run", "model.onnx", "--inputs", "valid.npz", "--batch-size", "8", "-o", "out.npz")
    with np.load("out.npz") as together:
        for index in range(30):
            with np.load(f"out/{index:06d}.npz") as alone:
                np.testing.assert_array_equal(alone["logits"], together["logits"][index : index + 1])


def test_samples_that_cannot_be_told_apart_are_an_error_or_a_note(chosen: Path, quantrt_json):
    np.savez("same.npz", x=np.ones((2, 3), np.float32))
    words = ("run", "chosen.onnx", "--inputs", "same.npz")
    error = quantrt_json(*words, "--batch-size", "2", "-o", "out", code=3)["error"]
    assert ("'found'" in error["message"], error["got"]) == (True, "shape [6] of 2 samples")
    assert error["hint"] == "--batch-size 1"
    (note,) = quantrt_json(*words, "-o", "out.npz")["notes"]
    assert note.startswith("no row for each sample in 'found'")
    error = quantrt_json("run", "chosen.onnx", "--inputs", "samples", "-o", "out.npz", code=3)["error"]
    assert error["hint"] == "-o FOLDER, which gets a file for every sample"


@pytest.mark.parametrize("output", ["out.txt", "valid.npz/out", "none/out"])
def test_what_is_no_place_for_a_folder(folder: Path, quantrt_json, output: str):
    words = ("run", "model.onnx", "--inputs", "valid.npz", "-o", output)
    assert "cannot write" in quantrt_json(*words, code=2)["error"]["message"]


TEXT = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
g (int64[n] x) => (string[n] label) {
  label = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_strings = ["cat", "dog"]>(x) }"""


def test_outputs_of_text(folder: Path, quantrt_json):
    onnx.save(onnx.parser.parse_model(TEXT), "text.onnx")
    np.savez("x.npz", x=np.array([0, 1, 1]))
    told = quantrt_json("run", "text.onnx", "--inputs", "x.npz", "-o", "labels.npz")
    assert told["outputs"]["label"] == {"dtype": "string", "shape": [3]}
    assert np.load("labels.npz", allow_pickle=False)["label"].tolist() == ["cat", "dog", "dog"]
