# SPDX-License-Identifier: Apache-2.0
"""Builds with profiles of shapes, for a GPU for which the CPU stands in."""

import importlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build
from quantrt.config import BenchConfig, BuildConfig, CalibrationConfig, CudaConfig, DeviceConfig
from quantrt.device import describe_device
from quantrt.errors import DataError, UsageError
from quantrt.gpu import gpu_named
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program_json import program_from_model
from quantrt.runtime import executor as executor_module
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda import lower
from tests.nets import resnet, run_ort, samples

build_module = importlib.import_module("quantrt.build")

ROW = {"name": "NVIDIA H200", "memory_bytes": 2**37, "driver": "570.1", "compute_capability": "9.0"}


def open_on_cpu(model: LibraryModel, output_names: object) -> CudaExecutor:
    program = program_from_model(model)
    return CudaExecutor(program, *specs_of(program), device="cpu")


@pytest.fixture
def cpu_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU takes the part of an H200."""
    monkeypatch.setattr(
        lower, "CudaLowering", partial(lower.CudaLowering, gpu=gpu_named("H200"), device="cpu")
    )
    monkeypatch.setattr(executor_module, "_open_cuda", open_on_cpu)
    for module in (build_module, executor_module):
        monkeypatch.setattr(module, "check_library", lambda library, **options: None)
    here = {**describe_device(with_gpu=False), "gpu": [ROW]}
    monkeypatch.setattr(build_module, "describe_machine", lambda library: here)


def config(*profiles: str) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", "fp16", "int8"}),
        bench=BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3),
        calibration=CalibrationConfig(method="minmax"),
        device=DeviceConfig(device="cuda"),
        cuda=CudaConfig(
            builder_optimization_level=0,
            exclude_tactic_sources=("triton", "cublaslt", "cudnn"),
            profiles=profiles,
        ),
    )


@pytest.mark.parametrize("metric_samples", [7, 12])
def test_a_profile_without_the_usual_batch_is_timed_checked_and_kept(cpu_for_gpu: None, metric_samples: int):
    model = resnet()
    data = {"x": samples(metric_samples, 3, 16, 16)}
    with build(model, config=config("x=3x3x16x16:5x3x16x16:6x3x16x16"), calibration=data) as engine:
        checked = [row["accuracy"] for row in engine.report["candidates"] if row["accuracy"]]
        assert all(row["samples"] == metric_samples for row in checked)
        x = samples(6, 3, 16, 16, seed=9)
        (want,) = run_ort(model.graph, {"x": x})
        assert np.linalg.norm(engine.run({"x": x})["y"] - want) <= 0.1 * np.linalg.norm(want)
        for batch in (2, 7):
            with pytest.raises(DataError, match="outside the shapes that the engine was built for"):
                engine.run({"x": samples(batch, 3, 16, 16)})
        engine.create_context().run({"x": x})


def test_targets_are_of_cuda_engines():
    for options in ({"targets": ("sm_90",)}, {"gpu": "H200"}):
        with pytest.raises(UsageError, match="are of CUDA engines"):
            BuildConfig(cuda=CudaConfig(**options))
    with pytest.raises(UsageError, match="one batch size"):
        replace(config("x=1x3x16x16"), bench=BenchConfig(batch=2))


def test_a_profile_of_no_input_is_told_before_calibration(cpu_for_gpu: None):
    with pytest.raises(UsageError, match="no input 'y'"):
        build(resnet(), config=config("y=1x3x16x16"))
