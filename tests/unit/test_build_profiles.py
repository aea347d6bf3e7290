# SPDX-License-Identifier: Apache-2.0
"""Builds with profiles of shapes, for a GPU for which the CPU stands in."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build
from quantrt.config import BenchConfig, BuildConfig, CalibrationConfig, CudaConfig, DeviceConfig
from quantrt.errors import DataError, UsageError
from tests.gpu_stand_in import REFERENCE_ALONE, stand_in_for_gpu
from tests.nets import resnet, run_ort, samples


@pytest.fixture
def cpu_for_gpu() -> Iterator[None]:
    with stand_in_for_gpu():
        yield


def config(*profiles: str) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", "fp16", "int8"}),
        bench=BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3),
        calibration=CalibrationConfig(method="minmax"),
        device=DeviceConfig(device="cuda"),
        cuda=replace(REFERENCE_ALONE, profiles=profiles),
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
