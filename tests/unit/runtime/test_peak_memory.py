# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from types import SimpleNamespace

import pytest

from quantrt.runtime.peak_memory import peak_memory

ALONE = """
import sys
from quantrt.runtime.peak_memory import peak_host_bytes, peak_memory
before = peak_host_bytes()
held = b"1" * (before + (64 << 20))
del held
print(peak_host_bytes() - before, peak_memory()["device_bytes"], "torch" in sys.modules)
"""


def test_the_peak_stays_when_memory_is_given_back_and_needs_no_torch():
    out = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    grown, device, has_torch = out.stdout.split()
    assert 60 << 20 <= int(grown) <= 300 << 20
    assert (device, has_torch) == ("None", "False")


def test_without_a_gpu_there_is_no_device_peak():
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        pytest.skip("a GPU was used in this process")
    assert peak_memory()["device_bytes"] is None


def test_the_device_peak_is_what_torch_handed_out(monkeypatch: pytest.MonkeyPatch):
    cuda = SimpleNamespace(is_initialized=lambda: True, max_memory_allocated=lambda: 12_345)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert peak_memory()["device_bytes"] == 12_345
