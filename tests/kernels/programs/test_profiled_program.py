# SPDX-License-Identifier: Apache-2.0
"""Programs with kernels at the ends of their profiles, in Triton's interpreter."""

import numpy as np
import pytest

from quantrt.config import CudaConfig
from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.plan.program import Program
from quantrt.plan.program_json import program_from_model
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda import lower
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, run_ort, samples

H200 = gpu_named("H200")
TEXT = "net (float[N,64] x) => (float[N,32] y) { h = MatMul(x, w) y = Relu(h) }"
MODEL = net(TEXT, {"w": samples(64, 32)})
CONFIG = CudaConfig(profiles=("x=1x64:8x64:41x64",), builder_optimization_level=0)


def lowered() -> Program:
    lowering = CudaLowering(MODEL, CONFIG, {"x": samples(3, 64)}, gpu=H200, device="cpu")
    return program_from_model(lowering.lower(None, "fp16")[0])


def assert_right(program: Program) -> None:
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    for batch in (1, 3, 41):
        x = samples(batch, 64, seed=batch)
        (want,) = run_ort(MODEL.graph, {"x": x})
        got = executor.run({"x": x})["y"]
        assert np.linalg.norm(got - want) <= 5e-3 * np.linalg.norm(want)


def test_kernels_chosen_at_the_best_shapes_run_at_both_ends():
    program = lowered()
    assert program.kernels
    assert not any(step.runner == "formula" for step in program.steps)
    assert_right(program)


def test_a_region_that_refuses_an_end_runs_by_the_reference(monkeypatch: pytest.MonkeyPatch):
    answers = [{"MatMul_0": DataError("too many rows")}, {}]
    monkeypatch.setattr(lower, "regions_that_fail", lambda *arguments: answers.pop(0))
    program = lowered()
    assert not answers
    assert [step.runner for step in program.steps if step.region == "MatMul_0"] == ["formula"]
    assert "region 'MatMul_0' runs by the reference: too many rows" in program.notes["tuning"]
    assert_right(program)


def test_what_even_the_reference_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        lower, "regions_that_fail", lambda *arguments: {"MatMul_0": DataError("no such rows")}
    )
    with pytest.raises(DataError, match="no such rows"):
        lowered()
