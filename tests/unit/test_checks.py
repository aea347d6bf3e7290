# SPDX-License-Identifier: Apache-2.0
"""What is checked of a candidate before it ships."""

from types import SimpleNamespace

import numpy as np
import pytest

from quantrt import checks
from quantrt.checks import make_size_checker
from quantrt.config import BuildConfig, DeviceConfig
from quantrt.plan.plan import ExecOptions
from quantrt.prepare import Job
from quantrt.tactics.candidates import Candidate, Spec
from tests.nets import net

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


def checker(engine: Lanes):
    job = Job(MODEL, BuildConfig(device=DeviceConfig(device="cuda")), {}, lambda event: None)
    specs = {"cuda fp32": Spec("cuda", "fp32"), "cuda fp16": Spec("cuda", "fp16", "fp16")}
    engines = {"cuda fp32": Lanes(), "cuda fp16": engine}
    model = SimpleNamespace(library="cuda")
    candidates = {
        name: Candidate(spec, model, ExecOptions(), engines[name], None) for name, spec in specs.items()
    }
    return make_size_checker(job, candidates, None)


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
