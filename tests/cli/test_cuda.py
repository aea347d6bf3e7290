# SPDX-License-Identifier: Apache-2.0
"""Engines for a GPU where none can be used: what is missing is said before anything takes time."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quantrt.plan.serialize import save_plan
from tests.programs import cuda_plan

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_PACKAGES = """
import sys
sys.modules['torch'] = sys.modules['triton'] = None
import quantrt.calibrate.collect as collect
collect.collect = lambda *args, **options: 1 / 0
from quantrt.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

COMMANDS = (
    ("build", "model.onnx", "--device", "cuda", "--int8", "--calib-data", "calib.npz", "-o", "new.qrt"),
    ("run", "cuda.qrt", "--inputs", "valid.npz", "-o", "out.npz"),
    ("bench", "cuda.qrt"),
    ("compare", "model.onnx", "cuda.qrt", "--data", "valid.npz"),
)


def sees_a_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch  # noqa: TID251  asked here alone

    return torch.cuda.is_available()


def without_packages(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGES, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def engine(folder: Path) -> Path:
    """cuda.qrt, an engine for a GPU, beside model.onnx and its data."""
    save_plan(cuda_plan(), folder / "cuda.qrt")
    return folder / "cuda.qrt"


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_without_the_packages_the_command_says_what_to_install(words: tuple[str, ...], engine: Path):
    done = without_packages(*words)
    assert done.returncode == 4, done.stderr
    assert "the package 'torch' is not installed here" in done.stderr
    assert done.stderr.endswith("try `pip install 'quantrt[cuda]'`\n")
    assert not Path("new.qrt").exists()


@pytest.mark.skipif(sees_a_gpu(), reason="there is a GPU here")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_without_a_gpu_the_command_says_so(
    words: tuple[str, ...],
    engine: Path,
    quantrt_json: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("quantrt.model.load.load_model", lambda path: pytest.fail("the model was read"))
    error = quantrt_json(*words, code=4)["error"]
    assert "this machine has no usable GPU" in error["message"]
    assert "quantrt doctor" in error["hint"]


def test_inspect_needs_neither_gpu_nor_packages(engine: Path, quantrt_json: Callable[..., Any]):
    done = without_packages("inspect", "cuda.qrt", "--layers")
    assert done.returncode == 0, done.stderr
    for part in ("NVIDIA Test 9", "triton: conv2d 64x32", "its result is used twice"):
        assert part in done.stdout
    data = quantrt_json("inspect", "cuda.qrt")
    assert data["program"]["regions"][0]["median_us"] == 12.34
    assert data["device"]["gpu"][0]["name"] == "NVIDIA Test 9"


def test_inspect_of_an_engine_for_a_cpu_has_no_program(folder: Path, quantrt_json: Callable[..., Any]):
    fast = ("--warmup", "0.01", "--duration", "0.05", "--max-duration", "0.1", "--min-runs", "3")
    data = quantrt_json("build", "model.onnx", "-o", "cpu.qrt", *fast)
    assert data["program"] is None


def test_buffers_are_the_tensors_inside(engine: Path):
    from quantrt.report.subject import Subject

    plan = cuda_plan()
    subject = Subject(
        engine, None, plan.model, plan.options, plan.inputs, executor=None, kind="engine", precision="int8"
    )
    assert subject.tensors() == {"p": "nodes", "f": "view", "y": "nodes"}, "what depends on shapes is none"


SMI = """#!/bin/sh
echo "NVIDIA H200, 143771, 570.86.15, 9.0"
echo "Tesla T4, 15360, 570.86.15, 7.5"
"""


def test_doctor_says_what_each_gpu_multiplies_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    done = without_packages("doctor")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["NVIDIA", "H200", "9.0", "151", "GB", "570.86.15", "fp16,", "int8,", "fp8"] in rows
    assert ["Tesla", "T4", "7.5", "16.1", "GB", "570.86.15", "fp16,", "int8"] in rows
    assert "the package 'torch' is not installed here; try `pip install" in done.stdout
