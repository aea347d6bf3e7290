# SPDX-License-Identifier: Apache-2.0
"""Whether a program runs at the shapes that its profiles promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import torch

from quantrt.errors import DataError
from quantrt.plan.program import Program
from quantrt.runtime.cuda.device.launcher import CubinLauncher
from quantrt.runtime.cuda.steps.steps import FreshMemory, OpenProgram, open_program, run_steps
from quantrt.runtime.cuda.tensors import tensor_on

__all__ = ["regions_that_fail"]


def regions_that_fail(
    program: Program, samples: Sequence[Mapping[str, np.ndarray]], device: torch.device
) -> dict[str, DataError]:
    """Regions that refuse the shapes of a sample, and what they say; of each sample the first that does.

    Args:
        samples: inputs by name, one mapping for every set of shapes.

    Raises:
        DeviceError: the GPU fails, or has not the memory for a sample.
    """
    found: dict[str, DataError] = {}
    if not samples:
        return found
    opened = open_program(program, device)
    for sample in samples:
        values = {name: tensor_on(sample[name]).to(device) for name, _ in program.inputs}
        with torch.no_grad(), suppress(DataError):  # a step's, which is kept
            run_steps(opened, values, FreshMemory(device), partial(_watch, opened, found))
    _close(opened, device)
    return found


def _watch(opened: OpenProgram, found: dict[str, DataError], number: int, call: Callable[[], None]) -> None:
    """Run one step, and keep why it cannot."""
    try:
        call()
    except DataError as error:
        found.setdefault(opened.steps[number].step.region, error)
        raise


def _close(opened: OpenProgram, device: torch.device) -> None:
    """Free the machine code, once nothing runs it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    for launcher in opened.assets.kernels.values():
        if isinstance(launcher, CubinLauncher):
            launcher.close()
    for plan in opened.assets.plans.values():
        plan.close()
