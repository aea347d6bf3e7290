# SPDX-License-Identifier: Apache-2.0
"""The time of each module of a pipeline in one run of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from quantrt.torch.diffusers.parts import Part

__all__ = ["ModuleTime", "RunTime", "time_run"]


@dataclass(frozen=True)
class ModuleTime:
    """Calls of one module in a run.

    Attributes:
        calls: how often it was called.
        total_ms: in all calls together.
    """

    name: str
    calls: int
    total_ms: float

    @property
    def call_ms(self) -> float:
        """Mean time of a call."""
        return self.total_ms / self.calls


@dataclass(frozen=True)
class RunTime:
    """One run of a pipeline.

    Attributes:
        modules: those that were called, in the order of their first call.
        total_ms: of the whole run, with what is between the modules.
        images: how many it made.
    """

    modules: tuple[ModuleTime, ...]
    total_ms: float
    images: int

    @property
    def images_per_s(self) -> float:
        """Images per second of the whole run."""
        return 1e3 * self.images / self.total_ms


def time_run(parts: Sequence[Part], run: Callable[[], int]) -> RunTime:
    """Time one run, which says how many images it made. On a GPU every call is waited for."""
    clocks = {part.name: _Clock() for part in parts}
    handles: list[Any] = []
    for part in parts:
        clock = clocks[part.name]
        handles.append(part.module.register_forward_pre_hook(clock.start))
        handles.append(part.module.register_forward_hook(clock.stop))
    try:
        start = _now()
        images = run()
        total_ms = 1e3 * (_now() - start)
    finally:
        for handle in handles:
            handle.remove()
    called = tuple(ModuleTime(name, x.calls, 1e3 * x.total_s) for name, x in clocks.items() if x.calls)
    return RunTime(called, total_ms, images)


class _Clock:
    def __init__(self) -> None:
        self.calls, self.total_s, self._start = 0, 0.0, 0.0

    def start(self, module: nn.Module, args: Any) -> None:
        self._start = _now()

    def stop(self, module: nn.Module, args: Any, result: Any) -> None:
        self.total_s += _now() - self._start
        self.calls += 1


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
