# SPDX-License-Identifier: Apache-2.0
"""Models and engines are opened and run the same way, and looked into where that is possible."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.errors import ModelError, UsageError
from quantrt.report.subject import open_subject, own_rows

X = np.array([[1, -1, 2, -2], [0, 1, 0, 1]], np.float32)
H = X * np.array([1, 2, 3, 4], np.float32)


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_an_engine_runs(library: str, make_engine: Callable[..., Path]):
    with open_subject(make_engine(library)) as subject:
        assert (subject.kind, subject.precision, subject.model.library) == ("engine", "fp32", library)
        np.testing.assert_array_equal(subject.run({"x": X})["y"], np.maximum(H, 0))
        assert [spec.name for spec in subject.inputs] == ["x"]


def test_a_model_runs_as_it_is_on_disk(make_engine: Callable[..., Path]):
    path = make_engine("onnxruntime").with_name("model.onnx")
    with open_subject(path, threads=1) as subject:
        assert (subject.kind, subject.precision) == ("onnx", "float")
        assert subject.options.threads == 1
        np.testing.assert_array_equal(subject.run({"x": X})["y"], np.maximum(H, 0))


def test_tensors_inside_can_be_tapped(make_engine: Callable[..., Path]):
    for path in (make_engine("onnxruntime"), make_engine("onnxruntime").with_name("model.onnx")):
        with open_subject(path) as subject:
            assert subject.tensors() == {"h": "Mul", "y": "Relu"}
            with closing(subject.tap(["h", "y"])) as tapped:
                found = tapped.run({"x": X})
        np.testing.assert_array_equal(found["h"], H)
        np.testing.assert_array_equal(found["y"], np.maximum(H, 0))


def test_tensors_inside_an_openvino_engine_can_be_tapped(make_engine: Callable[..., Path]):
    with open_subject(make_engine("openvino")) as subject:
        assert subject.tensors() == {"h": "Multiply", "y": "Relu"}
        with closing(subject.tap(["h", "y"])) as tapped:
            found = tapped.run({"x": X})
    assert list(found) == ["h", "y"]
    np.testing.assert_array_equal(found["h"], H)
    np.testing.assert_array_equal(found["y"], np.maximum(H, 0))


def test_notes_of_an_engine_are_passed_on(make_engine: Callable[..., Path]):
    with open_subject(make_engine("onnxruntime", is_calibrated=False)) as subject:
        assert any("uncalibrated" in note for note in subject.notes)


def test_other_files_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"suffix '.txt'"):
        open_subject(tmp_path / "a.txt")
    for name in ("a.onnx", "a.qrt"):
        with pytest.raises(ModelError, match="no such file"):
            open_subject(tmp_path / name)


def test_padding_rows_are_left_out(make_engine: Callable[..., Path]):
    from quantrt.ir.tensor_spec import TensorSpec

    dataset = open_dataset({"x": np.ones((3, 4), np.float32)}, [TensorSpec("x", "float32", (2, 4))])
    outputs = {"y": np.zeros((2, 4)), "scalar": np.float32(1)[()], "other": np.zeros((5, 2))}
    counts = [
        {name: np.shape(array) for name, array in own_rows(outputs, batch, dataset).items()}
        for batch in dataset.batches(2)
    ]
    assert counts == [
        {"y": (2, 4), "scalar": (), "other": (5, 2)},
        {"y": (1, 4), "scalar": (), "other": (5, 2)},
    ]
