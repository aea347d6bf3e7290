# SPDX-License-Identifier: Apache-2.0
"""From whole models that fail to the few nodes that do, and a folder whose command shows it."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.cli.main import main
from quantrt.config import CompareConfig
from quantrt.errors import ModelError, UsageError
from quantrt.model.file.save import save_model
from quantrt.plan.serialize import save_plan
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import ORT
from quantrt.report.bisect import folder as folder_module
from quantrt.report.bisect.bisect import bisect, read_sides, show_bisection
from tests.nets import net, quantized
from tests.programs import cuda_plan
from tests.unit.report.layer_errors.quantized_pairs import PLANTED, inputs, outliers, save_engine, save_float

BRANCHES = """net (float[N,6] x) => (float[N,3] y) {{
  [a] a = MatMul(x, w)
  [b] b = Relu(a)
  [c] c = Neg(a)
  [d] d = Sigmoid(c)
  [e] e = {culprit}
  [f] f = Add(b, e)
  [g] g = Tanh(f)
  [h] y = Gather<axis = 1>(g, index)
}}"""


def branches(path: Path, culprit: str = "Log(d)", index: int = 5) -> Path:
    arrays = {
        "w": np.eye(6, dtype=np.float32) * 2,
        "most": np.asarray(1.5, np.float32),
        "index": np.array([0, 1, index], np.int64),
    }
    save_model(net(BRANCHES.format(culprit=culprit), arrays).graph, path)
    return path


def run(
    a: Path, b: Path, data: Mapping[str, np.ndarray], folder: Path, config: CompareConfig | None = None
) -> dict[str, Any]:
    sides = read_sides(a, b)
    found = bisect(sides, open_dataset(data, sides[0].inputs), config or CompareConfig(), folder)
    show_bisection(found)
    return found


def code_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of the command in the README, run where it is."""
    monkeypatch.chdir(folder)
    words = shlex.split((folder / "README.md").read_text().splitlines()[0].strip("`"))
    assert words[0] == "quantrt"
    return main([*words[1:], "-q"])


X = {"x": np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)}


@pytest.mark.parametrize("library", ["onnx", "onnxruntime", "openvino"])
def test_the_planted_layer_is_cut_out(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = save_float(outliers(), tmp_path)
    if library == "onnx":
        subject = tmp_path / "q.onnx"
        save_model(write(quantized(outliers(), ORT, inputs(), method="minmax")), subject)
    else:
        subject = save_engine(path, library, inputs())
    found = run(path, subject, inputs(2, seed=6), tmp_path / "failure")
    failure = found["failure"]
    assert failure["kind"] == "differs"
    assert PLANTED in failure["nodes"]
    assert len(failure["nodes"]) <= 6 < failure["node_count"]
    assert failure["inputs"] == ["r1"]
    assert found["folder"]["files"][0] == "README.md"
    assert {"inputs.npz", "reference.onnx", "subject.onnx"} <= set(found["folder"]["files"])
    assert code_of(tmp_path / "failure", monkeypatch) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_difference_in_one_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    a, b = branches(tmp_path / "a.onnx"), branches(tmp_path / "b.onnx", "Min(d, most)")
    found = run(a, b, X, tmp_path / "failure")
    assert found["failure"]["nodes"] == ["e"]
    assert found["failure"]["inputs"] == ["d"]
    assert code_of(tmp_path / "failure", monkeypatch) == 1


def test_nan_is_followed_to_where_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    a, b = branches(tmp_path / "a.onnx"), branches(tmp_path / "b.onnx", "Log(c)")
    found = run(a, b, X, tmp_path / "failure")
    assert found["failure"]["kind"] == "not finite"
    assert (found["failure"]["nodes"], found["failure"]["outputs"]) == (["e"], ["e"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("FAILED not finite")
    assert max(map(len, lines)) <= 110
    assert code_of(tmp_path / "failure", monkeypatch) == 1


def test_a_library_that_refuses_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An index beyond the end is found out when the node runs."""
    a, b = branches(tmp_path / "a.onnx"), branches(tmp_path / "b.onnx", index=7)
    found = run(a, b, X, tmp_path / "failure")
    assert (found["failure"]["kind"], found["failure"]["nodes"]) == ("crash", ["h"])
    assert "indices" in found["folder"]["says"]
    assert code_of(tmp_path / "failure", monkeypatch) == 3


def test_the_reference_may_be_what_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    a, b = branches(tmp_path / "a.onnx", index=7), branches(tmp_path / "b.onnx")
    found = run(a, b, X, tmp_path / "failure")
    assert (found["failure"]["kind"], found["failure"]["nodes"]) == ("crash", ["h"])
    assert found["failure"]["model"] == str(a)
    assert code_of(tmp_path / "failure", monkeypatch) == 3


def test_both_crash(tmp_path: Path):
    a = branches(tmp_path / "a.onnx", index=7)
    with pytest.raises(ModelError, match="neither model runs"):
        run(a, a, X, tmp_path / "failure")


def test_where_nothing_fails_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = branches(tmp_path / "a.onnx")
    found = run(a, a, X, tmp_path / "failure")
    assert (found["passed"], found["failure"]) == (True, None)
    assert capsys.readouterr().out.startswith("PASSED no sample fails")
    assert not (tmp_path / "failure").exists()


def test_the_worst_sample_is_taken(tmp_path: Path):
    """Only the third sample is beyond the bound that the two models differ in."""
    a, b = branches(tmp_path / "a.onnx", "Abs(a)"), branches(tmp_path / "b.onnx", "Min(a, most)")
    x = np.full((4, 6), 0.1, np.float32)
    x[2] = -3.0
    found = run(a, b, {"x": x}, tmp_path / "failure")
    assert found["failure"]["sample"] == 2
    with np.load(tmp_path / "failure" / "inputs.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["a"], 2 * x[2:3])


def test_a_part_that_does_not_fail_again_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Passes:
        def __init__(self, process: Any) -> None:
            self.process = process

        def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
            return {"passed": True} if "compare" in request else self.process.ask(request)

    write_folder = folder_module.write_folder
    monkeypatch.setattr(
        "quantrt.report.bisect.bisect.write_folder",
        lambda *given: write_folder(*given[:-1], Passes(given[-1])),
    )
    a, b = branches(tmp_path / "a.onnx"), branches(tmp_path / "b.onnx", "Log(c)")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ModelError, match="does not fail when it is read from files"):
        run(a, b, X, tmp_path / "failure")
    assert sorted(tmp_path.iterdir()) == before


def test_what_cannot_be_taken_apart_says_so(tmp_path: Path):
    a = branches(tmp_path / "a.onnx")
    save_plan(cuda_plan(), tmp_path / "gpu.qrt")
    with pytest.raises(UsageError, match="engine for a GPU") as caught:
        read_sides(a, tmp_path / "gpu.qrt")
    assert "--layers" in (caught.value.hint or "")
    path = save_float(outliers(), tmp_path)
    engine = save_engine(path, "openvino", inputs())
    with pytest.raises(UsageError, match="made from its ONNX model"):
        read_sides(engine, engine)
    with pytest.raises(UsageError, match="different inputs"):
        read_sides(a, path)


WORDS: list[tuple[Callable[[Path], list[str]], str]] = [
    (lambda p: ["--bisect"], "without a folder"),
    (lambda p: ["-o", str(p / "new")], "writes no file"),
    (lambda p: ["--bisect", "-o", str(p)], "it exists"),
    (lambda p: ["--bisect", "-o", str(p / "no" / "new")], "does not exist"),
    (lambda p: ["--bisect", "--layers", "-o", str(p / "new")], "at once"),
    (lambda p: ["--all"], "without --layers"),
]


@pytest.mark.parametrize(("words", "says"), WORDS, ids=[says for _, says in WORDS])
def test_options_that_do_not_go_together(
    words: Callable[[Path], list[str]], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    a = branches(tmp_path / "a.onnx")
    np.savez(tmp_path / "x.npz", **X)
    assert main(["compare", str(a), str(a), "--data", str(tmp_path / "x.npz"), *words(tmp_path)]) == 2
    assert says in capsys.readouterr().err
