# SPDX-License-Identifier: Apache-2.0
"""What is checked of a candidate before it ships."""

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from quantrt import checks
from quantrt.assign.accuracy import find_metric
from quantrt.assign.checked import Checked
from quantrt.calibrate.dataset import open_dataset
from quantrt.checks import make_checker, make_size_checker
from quantrt.config import Budget, BuildConfig, CudaConfig, DeviceConfig
from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.prepare import Job
from quantrt.quantize.qdq import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.runtime.onnxruntime_executor import OnnxRuntimeExecutor, open_asleep
from quantrt.tactics.candidates import Candidate, Spec
from tests.nets import net, quantized, resnet, samples

MODEL = net("net (float[N,3] x) => (float[N,3] y) { y = Relu (x) }", [])


class Lanes:
    """An engine that counts what is opened of it; in a lane of its own two rows are wrong."""

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


@pytest.mark.parametrize(("most_bytes", "runs"), [(1 << 20, 0), (0, 2)])
def test_the_float_model_runs_on_samples_by_threads_that_sleep(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, most_bytes: int, runs: int
):
    """In a session of its own, once for all candidates; a large model in the one that is there."""

    class Own(Lanes):
        def run(self, inputs):
            self.opened += 1
            return super().run(inputs)

    monkeypatch.setattr(checks, "MOST_ASLEEP_BYTES", most_bytes)
    config = BuildConfig(budget=Budget(metric="cosine"))
    job = Job(MODEL, config, {}, lambda event: None)
    data = open_dataset({"x": rng.standard_normal((12, 3), np.float32)}, MODEL.inputs)
    own, model = Own(), lower_to_onnxruntime(MODEL.graph)
    candidates = {
        "onnxruntime fp32": Candidate(Spec("onnxruntime", "fp32"), model, ExecOptions(), own, None),
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


@pytest.mark.parametrize("is_int8", [False, True], ids=["fp32", "int8"])
def test_what_sleeps_computes_the_same_bit_for_bit(is_int8: bool):
    """Accuracy is measured by threads that sleep, of what is shipped with threads that spin."""
    model, data = resnet(), samples(16, 3, 16, 16)
    graph = write(quantized(model, ORT, {"x": data})) if is_int8 else model.graph
    lowered = lower_to_onnxruntime(graph)
    spins, sleeps = OnnxRuntimeExecutor(lowered, ExecOptions()), open_asleep(lowered, ExecOptions())
    try:
        np.testing.assert_array_equal(spins.run({"x": data})["y"], sleeps.run({"x": data})["y"])
    finally:
        spins.close()
        sleeps.close()


def test_a_candidate_of_onnxruntime_is_checked_by_threads_that_sleep(rng: np.random.Generator):
    """And what was opened for that is closed again; the candidate itself runs nothing."""

    class Own(Lanes):
        def run(self, inputs):
            raise AssertionError("the candidate was run")

    job = Job(MODEL, BuildConfig(budget=Budget(metric="cosine")), {}, lambda event: None)
    data = open_dataset({"x": rng.standard_normal((12, 3), np.float32)}, MODEL.inputs)
    model = lower_to_onnxruntime(MODEL.graph)
    candidates = {
        name: Candidate(Spec("onnxruntime", name), model, ExecOptions(), Own(), None)
        for name in ("fp32", "int8")
    }
    metric = find_metric("cosine", has_labels=False)
    with ExitStack() as stack:
        found = make_checker(candidates, metric, Checked("samples", data), job, stack)("int8")
    assert found is not None and (found.samples, found.drop_ratio) == (12, pytest.approx(0.0, abs=1e-9))


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
