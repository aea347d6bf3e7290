# SPDX-License-Identifier: Apache-2.0
"""Samples from a function that is named."""

import sys
from pathlib import Path

import numpy as np
import pytest
from onnxruntime.quantization import CalibrationDataReader

from quantrt.calibrate.dataset import open_dataset
from quantrt.errors import DataError, UsageError
from quantrt.ir.tensor_spec import TensorSpec

X = TensorSpec("x", "float32", ("n", 3))
CODE = """
import numpy as np

calls = 0

def load_data():
    global calls
    calls += 1
    for number in range(4):
        yield {"x": np.full((1, 3), number, np.float32)}

def broken():
    yield {"x": np.zeros((1, 3), np.float32)}
    raise ValueError("no more")

rows = [1, 2]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module in the present folder."""
    name = f"samples_of_a_user_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return name


@pytest.mark.parametrize("suffix", ["", ".py"])
def test_a_function_is_called_whenever_its_samples_are_read(module: str, suffix: str):
    dataset = open_dataset(f"{module}{suffix}:load_data", [X])
    for _ in range(2):
        (batch,) = dataset.batches(8)
        np.testing.assert_array_equal(batch.inputs["x"][:, 0], [0, 1, 2, 3])
    assert sys.modules[module].calls == 2


def test_a_reader_that_has_no_more_than_get_next_is_asked_until_it_has_none():
    class Reader:
        def __init__(self) -> None:
            self.left = [{"x": np.full((1, 3), number, np.float32)} for number in (2, 1, 0)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    dataset = open_dataset(Reader, [X])
    for _ in range(2):
        (batch,) = dataset.batches(8)
        np.testing.assert_array_equal(batch.inputs["x"][:, 0], [0, 1, 2])


def test_an_error_of_the_function_is_told_as_one(module: str):
    with pytest.raises(DataError, match=f"cannot read the samples of '{module}:broken'") as caught:
        list(open_dataset(f"{module}:broken", [X]).batches(1))
    assert caught.value.got == f"ValueError: no more (line 14 of {module}.py)"


@pytest.mark.parametrize(
    ("reference", "got", "hint"),
    [
        ("{0}:lod_data", "no function 'lod_data' in '{0}'", "'{0}:load_data'"),
        ("{0}:rows", "'rows' is no function: list", None),
        ("nowhere_at_all:f", "No module named 'nowhere_at_all'", None),
    ],
)
def test_what_is_no_function(module: str, reference: str, got: str, hint: str | None):
    with pytest.raises(UsageError, match="cannot find the function") as caught:
        open_dataset(reference.format(module), [X])
    assert caught.value.got == got.format(module)
    assert caught.value.hint == (None if hint is None else hint.format(module))


def test_code_without_a_function(module: str):
    with pytest.raises(UsageError, match="cannot read samples from") as caught:
        open_dataset(f"{module}.py", [X])
    assert (caught.value.hint or "").startswith(f"{module}:load_data")


@pytest.mark.parametrize(
    ("code", "got"),
    [("open('absent.json')", "FileNotFoundError: .* \\(line 1 of "), ("def f(:", "SyntaxError: ")],
)
def test_a_module_that_fails_as_it_is_imported_is_no_bug(module: str, tmp_path: Path, code: str, got: str):
    (tmp_path / f"{module}.py").write_text(code)
    with pytest.raises(UsageError, match=got) as caught:
        open_dataset(f"{module}:load_data", [X])
    assert caught.value.hint == "the same with --traceback, which shows where"


class Dataset:
    """As NNCF's: no iterable, but with a method that gives what a model takes."""

    def get_inference_data(self) -> list[dict[str, np.ndarray]]:
        return [{"x": np.full((1, 3), number, np.float32)} for number in range(2)]


def test_the_samples_of_a_dataset_of_nncf():
    (batch,) = open_dataset(Dataset(), [X]).batches(8)
    np.testing.assert_array_equal(batch.inputs["x"][:, 0], [0, 1])


class Reader(CalibrationDataReader):
    """Of samples 0 and 1: to be used once, and without a length."""

    def __init__(self) -> None:
        self.left = iter([np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        x = next(self.left, None)
        return None if x is None else {"x": x}


def test_a_class_of_readers_is_called_whenever_its_samples_are_read():
    dataset = open_dataset(Reader, [X])
    for _ in range(2):
        (batch,) = dataset.batches(8)
        np.testing.assert_array_equal(batch.inputs["x"][:, 0], [0, 1])


def test_what_has_no_samples():
    with pytest.raises(UsageError, match="cannot read samples from a int"):
        open_dataset(3, [X])
