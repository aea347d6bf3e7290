# SPDX-License-Identifier: Apache-2.0
"""What timings depend on beside the work: the driver, as its kernel module tells it."""

import pytest

pytest.importorskip("torch", reason="the environment of timings names torch")

from quantrt.gpu import gpu_named
from quantrt.tactics.cuda.timing import environment
from quantrt.tactics.cuda.timing.environment import timing_environment

TEXTS = {
    "proprietary": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jul  1 2025\n",
    "open": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root)\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_driver_is_what_the_kernel_module_says(text, tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "version").write_text(text + "GCC version: gcc version 12.3.0\n")
    monkeypatch.setattr(environment, "LOADED", tmp_path / "version")
    monkeypatch.setattr(environment.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(environment, "describe_device", lambda: pytest.fail("nvidia-smi was asked"))
    assert timing_environment(gpu_named("H200"))["driver"] == "580.159.04"


def test_where_it_says_nothing_nvidia_smi_does(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "version").write_text("another text\n")
    monkeypatch.setattr(environment, "LOADED", tmp_path / "version")
    monkeypatch.setattr(environment.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(environment, "describe_device", lambda: {"gpu": [{"driver": "570.1"}]})
    assert timing_environment(gpu_named("H200"))["driver"] == "570.1"


def test_without_a_gpu_there_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment.torch.cuda, "is_available", lambda: False)
    assert timing_environment(gpu_named("H200"))["driver"] == "none"
