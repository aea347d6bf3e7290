# SPDX-License-Identifier: Apache-2.0
"""What is checked of a candidate before it ships."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from quantrt import checks
from quantrt.assign.accuracy.checked import Checked
from quantrt.assign.accuracy.metric import find_metric
from quantrt.calibrate.dataset import open_dataset
from quantrt.checks import make_checker, make_size_checker
from quantrt.config import Budget, BuildConfig, CudaConfig, DeviceConfig
from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.prepare import Job
from quantrt.tactics import sample_lanes
from quantrt.tactics.candidates import Candidate, Spec
from tests.nets import net

TWO = ExecOptions(threads=2)

MODEL = net("net (float[N,3] x) => (float[N,3] y) { y = Relu (x) }", [])


class Lanes:
    """An engine that counts what is opened of it; in a lane of its own two rows are wrong."""

    parallel_runs = 1

    def __init__(self, worst: float = 0.0) -> None:
        self.worst, self.opened, self.closed = worst, 0, 0

    def run(self, inputs):
        return {"y": np.maximum(inputs["x"], 0.0)}

    def create_context(self):
        self.opened += 1
        return SimpleNamespace(run=self.run_wrong, close=self.close)

    def run_wrong(self, inputs):
        return {"y": np.maximum(inputs["x"], 0.0) + self.worst * (len(inputs["x"]) == 1)}

    def close(self):
        self.closed += 1


@pytest.mark.parametrize(("most_bytes", "runs"), [(1 << 20, 1), (0, 2)])
def test_the_float_model_runs_on_samples_by_one_thread_each(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, most_bytes: int, runs: int
):
    """In a session of its own, once for all candidates, which was seen to compute the same on a first run; a
    large model in the one that is there.
    """

    class Own(Lanes):
        def run(self, inputs):
            self.opened += 1
            return super().run(inputs)

    monkeypatch.setattr(sample_lanes, "MOST_BYTES", most_bytes)
    config = BuildConfig(budget=Budget(metric="cosine"))
    job = Job(MODEL, config, {}, lambda event: None)
    data = open_dataset({"x": rng.standard_normal((12, 3), np.float32)}, MODEL.inputs)
    own, model = Own(), lower_to_onnxruntime(MODEL.graph)
    candidates = {
        "onnxruntime fp32": Candidate(Spec("onnxruntime", "fp32"), model, TWO, own, None),
        "openvino int8": Candidate(Spec("openvino", "int8"), model, ExecOptions(), Lanes(), None),
    }
    metric = find_metric("cosine", has_labels=False)
    with ExitStack() as stack:
        check = make_checker(candidates, metric, Checked("samples", data), job, stack)
        for _ in range(2):
            found = check("openvino int8")
            assert found is not None and (found.samples, found.drop_ratio) == (
                12,
                pytest.approx(0.0, abs=1e-9),
            )
    assert own.opened == runs  # batches of 8 and 4


@pytest.mark.parametrize("other", [0.0, 1.0], ids=["same bits", "other bits"])
def test_a_candidate_runs_on_samples_by_one_thread_each_where_that_is_the_same(
    rng: np.random.Generator, other: float
):
    """And what was opened for that is closed again; a candidate with other outputs runs all itself."""

    class Own(Lanes):
        def run(self, inputs):
            self.opened += 1
            return {"y": np.maximum(inputs["x"], 0.0) + np.float32(self.worst)}

    job = Job(MODEL, BuildConfig(budget=Budget(metric="cosine")), {}, lambda event: None)
    data = open_dataset({"x": rng.standard_normal((20, 3), np.float32)}, MODEL.inputs)
    model = lower_to_onnxruntime(MODEL.graph)
    engines = {"fp32": Own(), "int8": Own(other)}
    candidates = {
        name: Candidate(Spec("onnxruntime", name), model, TWO, engine, None)
        for name, engine in engines.items()
    }
    metric = find_metric("cosine", has_labels=False)
    with ExitStack() as stack:
        found = make_checker(candidates, metric, Checked("samples", data), job, stack)("int8")
    assert found is not None and found.samples == 20
    assert found.drop_ratio == pytest.approx(0.0, abs=1e-9) if other == 0.0 else found.drop_ratio > 0.1
    assert engines["fp32"].opened == 1
    assert engines["int8"].opened == (1 if other == 0.0 else 4)  # batches of 8, 8 and 4


def checker(engine: Lanes, cuda: CudaConfig | None = None, environment: dict[str, str] | None = None):
    config = BuildConfig(device=DeviceConfig(device="cuda"), cuda=cuda or CudaConfig())
    job = Job(MODEL, config, {}, lambda event: None)
    specs = {"cuda fp32": Spec("cuda", "fp32"), "cuda fp16": Spec("cuda", "fp16", "fp16")}
    engines = {"cuda fp32": Lanes(), "cuda fp16": engine}
    model = LibraryModel("cuda", b"{}", {})
    candidates = {
        name: Candidate(spec, model, ExecOptions(), engines[name], None) for name, spec in specs.items()
    }
    return make_size_checker(job, candidates, None, environment)


def test_other_batch_sizes_run_in_a_lane_beside_the_weights_that_are_there(monkeypatch: pytest.MonkeyPatch):
    def again(*arguments, **options):
        raise AssertionError("the engine's weights would be on the GPU twice")

    monkeypatch.setattr(checks, "open_executor", again)
    engine = Lanes()
    assert checker(engine)("cuda fp16") is None
    assert (engine.opened, engine.closed) == (1, 1)


def test_a_lane_that_is_wrong_at_one_size_is_told():
    engine = Lanes(worst=3.0)
    assert "its outputs are wrong at batch 1" in str(checker(engine)("cuda fp16"))
    assert engine.closed == 1


def test_with_a_timing_cache_what_was_right_is_not_run_again(tmp_path: Path):
    """Nor is it run at the usual size; without a GPU's environment nothing is kept."""
    for environment, opened in (({"gpu": "H200"}, [1, 0]), (None, [1, 1])):
        cache = str(tmp_path / f"{environment}.json")
        counted = []
        for _ in opened:
            engine = Lanes()
            assert checker(engine, CudaConfig(timing_cache=cache), environment)("cuda fp16") is None
            counted.append(engine.opened)
        assert counted == opened
    assert "wrong at batch 1" in str(checker(Lanes(worst=3.0), CudaConfig(), None)("cuda fp16"))


def test_with_a_timing_cache_what_was_wrong_is_looked_at_again(tmp_path: Path):
    cuda = CudaConfig(timing_cache=str(tmp_path / "t.json"))
    for _ in range(2):
        engine = Lanes(worst=3.0)
        assert "wrong at batch 1" in str(checker(engine, cuda, {"gpu": "H200"})("cuda fp16"))
        assert engine.opened == 1
    assert not (tmp_path / "t.json.sizes").exists()


def test_what_cannot_be_kept_is_not_told_as_unchecked(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    cuda = CudaConfig(timing_cache=str(tmp_path / "gone" / "t.json"))
    assert checker(Lanes(), cuda, {"gpu": "H200"})("cuda fp16") is None
    assert "t.json.sizes' (No such file or directory): later builds do without" in caplog.text
    assert "was not checked" not in caplog.text
