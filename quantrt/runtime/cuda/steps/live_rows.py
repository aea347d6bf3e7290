# SPDX-License-Identifier: Apache-2.0
"""Steps whose kernels read from the device how many of their rows count: see kernels/live_rows.py.

The number is the step's last input, and the last argument of every kernel that it launches; what runs the
step knows of neither.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from quantrt.kernels.live_rows import LIVE_ROWS
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner

__all__ = ["HAS_LIVE_ROWS", "open_live_rows"]

HAS_LIVE_ROWS = "has_live_rows"
"""The option of such a step."""


def open_live_rows(step: Step, assets: Assets, make: Callable[[Step, Assets], Runner]) -> Runner:
    """The runner of a step with that option.

    Args:
        make: opens the runner that the step names.
    """
    return _LiveRowsRunner(step, assets, make)


class _LiveRowsRunner:
    def __init__(self, step: Step, assets: Assets, make: Callable[[Step, Assets], Runner]) -> None:
        self._now = threading.local()
        launchers = {key: _LiveRowsLauncher(assets.kernels[key], self._now) for key in step.kernels}
        kernels = {**assets.kernels, **launchers}
        self._runner = make(replace(step, inputs=step.inputs[:-1]), replace(assets, kernels=kernels))

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        self._now.rows = inputs[-1]
        try:
            return self._runner.run(inputs[:-1], allocate)
        finally:
            del self._now.rows


class _LiveRowsLauncher:
    """A kernel without its last argument.

    Args:
        now: `rows` of it is that argument, in the thread that launches.
    """

    def __init__(self, launcher: Launcher, now: threading.local) -> None:
        self._launcher = launcher
        self._now = now
        spec = launcher.spec
        self.spec = replace(spec, signature=tuple(row for row in spec.signature if row[0] != LIVE_ROWS))

    def __call__(self, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        """See Launcher."""
        rows: torch.Tensor = self._now.rows
        self._launcher(grid, [*arguments, rows])
