# SPDX-License-Identifier: Apache-2.0
"""Peaks of a CPU from counters that are too coarse for it."""

import math

import pytest

from quantrt.plan.plan import ExecOptions
from quantrt.report.explain import cpu_peaks
from quantrt.runtime.openvino.watch import WatchedOpenVino


def test_layers_shorter_than_the_counters_still_have_a_rate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu_peaks, "SIZE", 64)
    monkeypatch.setattr(cpu_peaks, "SETS_BYTES", (1 << 16,))
    monkeypatch.setattr(WatchedOpenVino, "watch", lambda *_, **__: (("y",), [0.0], [0.01]))
    peaks = cpu_peaks.measure_cpu_peaks("openvino", ExecOptions())
    assert peaks.operations_per_us == {"fp32": 2 * 64**3, "int8": 2 * 64**3}
    assert peaks.bytes_per_us == ((1 << 16, 1 << 16),)
    assert 0 < peaks.launch_us < math.inf
