# SPDX-License-Identifier: Apache-2.0
"""The steps of a program, opened, and one pass over them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from quantrt.errors import DataError, DeviceError, InternalError, ModelError
from quantrt.ir.collector import without_collector
from quantrt.plan.program import Program, Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.steps.assets import open_assets
from quantrt.runtime.cuda.steps.live_rows import HAS_LIVE_ROWS, open_live_rows
from quantrt.runtime.cuda.steps.places import run_in_places
from quantrt.runtime.cuda.tensors import empty_tensor

__all__ = [
    "Around",
    "FreshMemory",
    "Memory",
    "OpenProgram",
    "OpenStep",
    "Values",
    "open_program",
    "open_runner",
    "run_steps",
]

_RUNNERS = "quantrt.runtime.cuda.runners"

Values = dict[str, Any]
"""Tensors by buffer."""

Around = Callable[[int, Callable[[], None]], None]
"""Is given a step's position and what runs it, and runs it."""


class Memory(Protocol):
    """Where the outputs of steps go."""

    def allocate_for(self, number: int) -> Allocate:
        """What the step at this position is given."""

    def note(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """What the step read and what it made."""


class FreshMemory:
    """New tensors from torch for every output."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def allocate_for(self, number: int) -> Allocate:
        """See Memory."""
        return self._allocate

    def note(self, number: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """See Memory."""

    def _allocate(
        self, output: int, shape: Sequence[int], dtype: torch.dtype, *, channels_last: bool = False
    ) -> torch.Tensor:
        return empty_tensor(shape, dtype, self._device, channels_last=channels_last)


@dataclass(frozen=True)
class OpenStep:
    """A step that can run.

    Attributes:
        frees: buffers that neither a later step nor the caller reads.
    """

    step: Step
    runner: Runner
    frees: tuple[str, ...]


@dataclass(frozen=True)
class OpenProgram:
    """A program on its device; shared by everything that runs it.

    Attributes:
        last_reads: by buffer, the last step that reads it; the number of steps where the caller does.
    """

    program: Program
    assets: Assets
    steps: tuple[OpenStep, ...]
    last_reads: dict[str, int]


@without_collector()
def open_program(
    program: Program, device: torch.device, open_step: Callable[[Step, Assets], Runner] | None = None
) -> OpenProgram:
    """Weights, kernels and runners of a program.

    Args:
        open_step: what makes the runners; by default the modules that the steps name.

    Raises:
        DeviceError: out of memory, or no machine code fits the GPU.
        ModelError: a step cannot be opened; names its region.
    """
    assets = open_assets(program, device)
    last = _last_reads(program)
    steps = []
    for number, step in enumerate(program.steps):
        used = (*step.inputs, *step.outputs, *(place.beside for place in step.places))
        frees = [name for name in dict.fromkeys(used) if last.get(name) == number]
        steps.append(OpenStep(step, (open_step or open_runner)(step, assets), tuple(frees)))
    return OpenProgram(program, assets, tuple(steps), last)


def run_steps(
    opened: OpenProgram,
    values: Values,
    memory: Memory,
    around: Around | None = None,
) -> None:
    """One pass: every step in order, its outputs put into `values`, what is read no more taken out.

    Args:
        around: what runs each step; None: nothing but the step itself.

    Raises:
        DataError: a step cannot take the shapes or values; names its region.
        DeviceError: out of memory, or the GPU failed; names the region.
    """
    for number in range(len(opened.steps)):
        if around is None:
            _run_step(opened, number, values, memory)
        else:
            around(number, partial(_run_step, opened, number, values, memory))


def _run_step(opened: OpenProgram, number: int, values: Values, memory: Memory) -> None:
    one = opened.steps[number]
    step = one.step
    inputs = [values[name] if name else None for name in step.inputs]
    try:
        outputs = run_in_places(one.runner, step, inputs, values, memory.allocate_for(number))
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"region '{step.region}' ran out of memory on {opened.assets.device}",
            got=str(error).partition(". ")[0],
            hint="a smaller --batch, fewer contexts, or freeing memory on the GPU",
        ) from error
    except torch.AcceleratorError as error:
        message = f"the GPU failed at region '{step.region}' (runner '{step.runner}')"
        raise DeviceError(message, got=str(error).partition("\n")[0]) from error
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
        shapes = ", ".join(_describe(x) for x in inputs) or "nothing"
        message = f"region '{step.region}' (runner '{step.runner}') cannot run {shapes}"
        raise DataError(message, got=str(error).partition("\n")[0] or type(error).__name__) from error
    if len(outputs) != len(step.outputs):
        raise InternalError(
            f"runner '{step.runner}' of region '{step.region}' made another number of outputs",
            got=str(len(outputs)),
            expected=str(len(step.outputs)),
        )
    memory.note(number, inputs, outputs)
    values.update((name, x) for name, x in zip(step.outputs, outputs, strict=True) if name)
    for name in one.frees:
        values.pop(name, None)


def open_runner(step: Step, assets: Assets) -> Runner:
    """What runs a step.

    Raises:
        ModelError: there is no such runner, or the step does not suit it; names the region.
    """
    name = f"{_RUNNERS}.{step.runner}"
    if not step.runner.isidentifier() or importlib.util.find_spec(name) is None:
        raise ModelError(
            f"region '{step.region}' needs a runner that this QuantRT does not have",
            got=f"'{step.runner}'",
            hint="`quantrt build MODEL.onnx ... -o ENGINE.qrt` again, with this version",
        )
    make: Callable[[Step, Assets], Runner] = importlib.import_module(name).open_runner
    try:
        if step.options.get(HAS_LIVE_ROWS):
            return open_live_rows(step, assets, make)
        return make(step, assets)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"the step of region '{step.region}' does not suit its runner '{step.runner}'",
            got=f"{type(error).__name__}: {error}",
            hint="`quantrt build MODEL.onnx ... -o ENGINE.qrt` again, with this version",
        ) from error


def _last_reads(program: Program) -> dict[str, int]:
    last: dict[str, int] = {}
    for number, step in enumerate(program.steps):
        beside = (place.beside for place in step.places)
        last.update(dict.fromkeys((name for name in (*step.outputs, *step.inputs, *beside) if name), number))
    last.update((buffer, len(program.steps)) for _, buffer, _ in program.outputs)
    return last


def _describe(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return "nothing"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
