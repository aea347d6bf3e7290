# SPDX-License-Identifier: Apache-2.0
"""A bound on the time that a build spends on kernels, and what a later build makes of the rest."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from quantrt.config import BuildConfig, CudaConfig
from quantrt.errors import UsageError
from quantrt.gpu import gpu_named
from quantrt.plan.program_json import program_from_model
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, samples, weights

TEXT = "net (float[N,16] x) => (float[N,16] y) { h = MatMul(x, v) y = MatMul(h, w) }"


def tuned(cache: Path, tuning_time_s: float | None) -> tuple[list[str], dict[str, Any]]:
    """Notes of the tuning, and the workloads that are in the timing cache then."""
    config = CudaConfig(
        exclude_tactic_sources=("triton", "cudnn"), timing_cache=str(cache), tuning_time_s=tuning_time_s
    )
    model = net(TEXT, weights({"v": (16, 16), "w": (16, 16)}))
    lowering = CudaLowering(model, config, {"x": samples(2, 16)}, gpu=gpu_named("h200"), device="cpu")
    notes = program_from_model(lowering.lower(None, "fp16")[0]).notes["tuning"]
    lowering.close()
    (device,) = json.loads(cache.read_text())["devices"]
    timed = device["workloads"]
    return notes, {key: row["tactics"] for key, row in timed.items() if row["tactics"]}


def test_what_is_left_when_the_time_is_over_is_timed_by_the_next_build(tmp_path: Path):
    notes, timed = tuned(tmp_path / "t.json", 0.0)
    assert any(note.endswith("workloads were not timed: the time was over") for note in notes)
    assert not timed
    notes, timed = tuned(tmp_path / "t.json", None)
    assert not any("the time was over" in note for note in notes)
    assert timed


def test_it_is_of_a_gpu_and_no_less_than_nothing():
    with pytest.raises(UsageError, match="tuning time is of a GPU's kernels"):
        BuildConfig(cuda=CudaConfig(tuning_time_s=1.0))
    for wrong in (-1.0, float("nan")):
        with pytest.raises(UsageError, match="cannot use this tuning time"):
            CudaConfig(tuning_time_s=wrong)
