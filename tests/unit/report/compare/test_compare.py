# SPDX-License-Identifier: Apache-2.0
"""Comparing models: figures, limits, what is skipped, and what is refused."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from quantrt.calibrate.dataset import Dataset, open_dataset
from quantrt.cli.json_text import json_text
from quantrt.config import CompareConfig
from quantrt.errors import DataError, ModelError, UsageError
from quantrt.report.compare.compare import compare
from quantrt.report.compare.show import show_comparison
from quantrt.report.subject import Subject, open_subject

MODEL = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,4] x) => (float[n,4] y)
<float[4] w = {{1, 2, 3, {last}}}>
{{ h = Mul(x, w)
   y = Relu(h) }}"""


def subject(folder: Path, name: str, text: str) -> Subject:
    onnx.save(onnx.parser.parse_model(text), folder / name)
    return open_subject(folder / name)


def model(folder: Path, name: str, last: float) -> Subject:
    return subject(folder, name, MODEL.format(last=last))


@pytest.fixture
def data(rng: np.random.Generator, tmp_path: Path) -> Dataset:
    with model(tmp_path, "inputs.onnx", 4) as any_model:
        return open_dataset({"x": rng.normal(size=(50, 4)).astype(np.float32)}, any_model.inputs)


DETECTOR = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,4] x) => (float[n,3] best, float[n,3] found)
<int64[1] k = {{3}}, float[4] w = {{{first}, 1, 1, 1}}, float[4] v = {{1, -1, 2, 3}}>
{{ scores = Mul(x, w)
   best, at = TopK(scores, k)
   values = Mul(x, v)
   found = GatherElements<axis=1>(values, at) }}"""


def test_rows_that_a_node_chooses_are_compared_as_a_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The first two scores are nearly one; B has them the other way round."""
    with (
        subject(tmp_path, "a.onnx", DETECTOR.format(first=1)) as a,
        subject(tmp_path, "b.onnx", DETECTOR.format(first=1.01)) as b,
    ):
        data = open_dataset({"x": np.array([[10, 10.05, 5, 1]], np.float32)}, a.inputs)
        found = compare(a, b, data, CompareConfig())
    assert found["passed"] is True
    rows = {row["name"]: row for row in found["outputs"]}
    assert rows["found"]["sqnr_db"] == math.inf  # place by place: -3 dB
    assert rows["best"]["max_abs"] == pytest.approx(0.1, rel=1e-4)
    (told,) = found["sets"]
    assert told["outputs"] == ("best", "found")
    assert (told["moved_ratio"], told["found_ratio"]) == (2 / 3, 1.0)
    show_comparison(found)
    assert "66.7% at another place; 100.0% are the same within 20 dB" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_model_against_itself(tmp_path: Path, data: Dataset):
    with model(tmp_path, "a.onnx", 4) as a:
        found = compare(a, a, data, CompareConfig(), layers=True)
    assert found["passed"] is True
    assert found["samples"] == 50
    (row,) = found["outputs"]
    assert (row["max_abs"], row["sqnr_db"], row["cosine"]) == (0.0, math.inf, pytest.approx(1.0))
    assert json.loads(json_text(found))["outputs"][0]["sqnr_db"] is None


def test_figures_equal_those_of_whole_arrays(tmp_path: Path, data: Dataset):
    """The comparison streams; the sums must not depend on the batches."""
    with model(tmp_path, "a.onnx", 4) as a, model(tmp_path, "b.onnx", 5) as b:
        found = compare(a, b, data, CompareConfig(batch_size=7), layers=True)
        x = np.concatenate([batch.inputs["x"] for batch in data.batches(50)])
    ref = np.maximum(x * np.array([1, 2, 3, 4], np.float32), 0)
    got = np.maximum(x * np.array([1, 2, 3, 5], np.float32), 0)
    want_db = 10 * math.log10(np.sum(ref.astype(float) ** 2) / np.sum((ref.astype(float) - got) ** 2))
    (row,) = found["outputs"]
    assert row["sqnr_db"] == pytest.approx(want_db, rel=1e-9)
    assert row["max_abs"] == pytest.approx(np.abs(ref - got).max())
    assert [layer["name"] for layer in found["layers"]] == ["h", "y"]
    assert [layer["op_type"] for layer in found["layers"]] == ["Mul", "Relu"]


@pytest.mark.parametrize(
    ("limits", "passed"),
    [
        ({}, False),
        ({"min_sqnr_db": 5.0}, True),
        ({"min_sqnr_db": 30.0}, False),
        ({"min_cosine": 0.9}, True),
        ({"min_cosine": 0.9999}, False),
        ({"max_abs": 100.0}, True),
        ({"max_abs": 0.001}, False),
        ({"min_sqnr_db": 5.0, "max_abs": 0.001}, False),
    ],
)
def test_limits(limits: dict[str, float], passed: bool, tmp_path: Path, data: Dataset):
    with model(tmp_path, "a.onnx", 4) as a, model(tmp_path, "b.onnx", 5) as b:
        found = compare(a, b, data, CompareConfig(**limits))
    assert found["passed"] is passed
    assert bool(found["outputs"][0]["violations"]) is not passed


def test_not_a_number_never_passes(tmp_path: Path, data: Dataset):
    with model(tmp_path, "a.onnx", 4) as a, model(tmp_path, "b.onnx", math.nan) as b:
        for limits in (CompareConfig(), CompareConfig(max_abs=1e9), CompareConfig(min_cosine=-1.0)):
            assert compare(a, b, data, limits)["passed"] is False


def test_the_last_line_says_passed_or_failed(
    tmp_path: Path, data: Dataset, capsys: pytest.CaptureFixture[str]
):
    with model(tmp_path, "a.onnx", 4) as a, model(tmp_path, "b.onnx", 5) as b:
        show_comparison(compare(a, a, data, CompareConfig()))
        assert capsys.readouterr().out.splitlines()[-1].startswith("PASSED 1 of 1 outputs")
        show_comparison(compare(a, b, data, CompareConfig(), layers=True))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("FAILED 1 of 1 outputs")
    assert "20 dB" in lines[-1]
    assert max(map(len, lines)) <= 100


def test_outputs_on_one_side_only_are_shown_and_none_in_common_is_an_error(tmp_path: Path, data: Dataset):
    two = MODEL.format(last=4).replace("=> (float[n,4] y)", "=> (float[n,4] y, float[n,4] h)")
    other = MODEL.format(last=4).replace("y", "z")
    with model(tmp_path, "a.onnx", 4) as a, subject(tmp_path, "b.onnx", two) as b:
        found = compare(a, b, data, CompareConfig())
        assert {row["name"]: row["skipped"] for row in found["outputs"]} == {"y": None, "h": "only in B"}
        assert found["passed"] is True
        with subject(tmp_path, "c.onnx", other) as c, pytest.raises(ModelError, match="no output to compare"):
            compare(a, c, data, CompareConfig())


def test_shapes_that_differ_are_no_pass(tmp_path: Path, data: Dataset):
    flat = (
        MODEL.format(last=4)
        .replace("=> (float[n,4] y)", "=> (float[m] y)")
        .replace("y = Relu(h)", "r = Relu(h)\n s = Constant<value_ints = [-1]>()\n y = Reshape(r, s)")
    )
    with (
        model(tmp_path, "a.onnx", 4) as a,
        subject(tmp_path, "b.onnx", flat) as b,
        pytest.raises(ModelError, match="shapes"),
    ):
        compare(a, b, data, CompareConfig())


def test_an_input_of_no_declared_rank_takes_any(tmp_path: Path, data: Dataset):
    proto = onnx.parser.parse_model(MODEL.format(last=4))
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, tmp_path / "free.onnx")
    with open_subject(tmp_path / "free.onnx") as free:
        (spec,) = free.inputs
        given = open_dataset({"x": np.ones((5, 4), np.float32)}, free.inputs)
        found = compare(free, free, given, CompareConfig())
    assert spec.shape is None and found["passed"] is True and found["samples"] == 5


def test_different_inputs_are_refused(tmp_path: Path, data: Dataset):
    other = MODEL.format(last=4).replace(" x)", " input)").replace("Mul(x", "Mul(input")
    with (
        model(tmp_path, "a.onnx", 4) as a,
        subject(tmp_path, "b.onnx", other) as b,
        pytest.raises(UsageError, match="different inputs"),
    ):
        compare(a, b, data, CompareConfig())


def test_inputs_of_other_sizes_are_refused_and_named(tmp_path: Path, data: Dataset):
    small = MODEL.format(last=4).replace("n,4] x", "n,1] x")
    with (
        model(tmp_path, "a.onnx", 4) as a,
        subject(tmp_path, "b.onnx", small) as b,
        pytest.raises(UsageError, match="their inputs 'x' differ") as caught,
    ):
        compare(a, b, data, CompareConfig())
    assert (caught.value.got, caught.value.expected) == ("x float32 [n,1]", "x float32 [n,4]")


@pytest.mark.parametrize("shape", ["m,4", "7,4", "n,k"])
def test_another_number_of_samples_is_no_other_input(shape: str, tmp_path: Path, data: Dataset):
    other = MODEL.format(last=4).replace("n,4] x", f"{shape}] x")
    with model(tmp_path, "a.onnx", 4) as a, subject(tmp_path, "b.onnx", other) as b:
        assert compare(a, b, data, CompareConfig(batch_size=7, max_samples=49))["passed"]


class NoSamples:
    """A dataset that has none."""

    source = "nothing"

    def batches(self, batch_size: int, max_samples: int | None = None) -> Iterator[Mapping[str, np.ndarray]]:
        return iter(())


def test_no_data_is_an_error(tmp_path: Path):
    with model(tmp_path, "a.onnx", 4) as a, pytest.raises(DataError, match="no samples"):
        compare(a, a, NoSamples(), CompareConfig())


def test_many_tensors_are_tapped_in_groups(tmp_path: Path, data: Dataset, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("quantrt.report.compare.compare.TAPS_PER_PASS", 1)
    with model(tmp_path, "a.onnx", 4) as a, model(tmp_path, "b.onnx", 5) as b:
        found = compare(a, b, data, CompareConfig(), layers=True)
    assert [layer["name"] for layer in found["layers"]] == ["h", "y"]
