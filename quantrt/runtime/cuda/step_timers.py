# SPDX-License-Identifier: Apache-2.0
"""How long each step takes when steps run one by one."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

__all__ = ["GpuTimer", "HostTimer"]


class HostTimer:
    """Milliseconds of each step on the CPU."""

    def __init__(self) -> None:
        self._latencies_ms: list[float] = []

    def around(self, number: int, call: Callable[[], None]) -> None:
        """Run and time one step."""
        start = time.perf_counter()
        call()
        self._latencies_ms.append((time.perf_counter() - start) * 1e3)

    def read(self) -> list[float]:
        """One figure per step."""
        return self._latencies_ms


class GpuTimer:
    """Milliseconds between the events around each step; a step that launches nothing takes about none."""

    def __init__(self) -> None:
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def around(self, number: int, call: Callable[[], None]) -> None:
        """Run one step between two events."""
        start, end = _event(), _event()
        start.record()
        call()
        end.record()
        self._events.append((start, end))

    def read(self) -> list[float]:
        """One figure per step, once the device has done them all."""
        if self._events:
            self._events[-1][1].synchronize()
        return [start.elapsed_time(end) for start, end in self._events]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
