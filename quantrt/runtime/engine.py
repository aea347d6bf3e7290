# SPDX-License-Identifier: Apache-2.0
"""A plan, opened and ready to run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from quantrt.errors import DeviceError, UsageError
from quantrt.ir.mapped import in_memory
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.plan import Plan
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.runtime.check_inputs import InputCheck
from quantrt.runtime.executor import (
    ContextThere,
    Executor,
    ExecutorContext,
    RunsThere,
    Settles,
    check_library,
    open_executor,
)
from quantrt.runtime.machine import describe_machine
from quantrt.runtime.no_samples import Runs, run_empty
from quantrt.runtime.notes import UNCALIBRATED, engine_notes
from quantrt.runtime.show import engine_html, engine_table

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Context", "Engine", "load"]

_LOGGER = logging.getLogger(__name__)

SIZE = attrgetter("size")

MOST_COPIED_BYTES = 256 << 20
"""Of weights that are taken into memory: of more, every process that serves the engine would hold its own."""


def load(path: Path | str) -> Engine:
    """Open an engine file.

    What was timed elsewhere is logged as a warning and kept in `Engine.notes`.

    Raises:
        ModelError: the file is missing, not an engine, damaged, or made by a newer QuantRT.
        DeviceError: the library it was made for is not installed, or this CPU lacks what it needs; the
            engine is for a GPU, and there is no usable one.
    """
    plan = _weights_in_memory(load_plan(path))
    name, library = Path(path).name, plan.model.library
    with _naming(name):
        check_library(library)
        here = describe_machine(library)
    engine = Engine(plan, name=name, here=here)
    for note in engine.notes:
        _LOGGER.warning("%s: %s", path, note)
    return engine


class Engine:
    """A verified model, opened on this machine. Every method may be called from several threads at once.

    Attributes:
        plan: what it was opened from.
        notes: what to know before trusting it here, one sentence each: random calibration, another CPU, GPU,
            driver or library version than those it was built with.

    Args:
        name: what it is called where it is shown.
        here: facts of this machine, to compare with the plan's; None when it is the machine of the build.
    """

    def __init__(self, plan: Plan, *, name: str = "engine", here: Mapping[str, Any] | None = None) -> None:
        self.plan = plan
        self.name = name
        self.notes = engine_notes(plan, plan.device if here is None else here)
        self._check = InputCheck(plan.inputs)
        self._executor: Executor | None = _open(plan, name)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What `run` takes."""
        return self.plan.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What `run` returns."""
        return self.plan.outputs

    @property
    def precision(self) -> str:
        """Of the whole engine, as shipped: "int8", "fp32", "fp16" or "bf16"."""
        return self.plan.precision

    @property
    def report(self) -> Mapping[str, Any]:
        """How it was built and verified, JSON-ready."""
        return self.plan.report

    @property
    def executor(self) -> Executor:
        """The library's model, for timing the library's own call.

        Raises:
            UsageError: the engine is closed.
        """
        if self._executor is None:
            raise UsageError(f"cannot use {self.name}: it is closed", hint="`quantrt.load(...)` again")
        return self._executor

    @property
    def parallel_runs(self) -> int:
        """How many simultaneous runs keep the machine busy: 1 unless built with the hint "throughput"."""
        return self.executor.parallel_runs

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Outputs by name, owned by the caller.

        The first run with new input shapes can take seconds longer: OpenVINO compiles for the first three
        shapes and once more for all others, and on a GPU shapes are recorded as a CUDA graph. `warm_up` does
        it before. Inputs of no samples give outputs of none, in their shapes and element types.

        Args:
            inputs: one array per input, in the shapes and element types of `inputs`: numpy, or DLPack on the
                CPU. Taken as they are, never cast.

        Raises:
            DataError: a name, element type or shape is wrong; names the input.
            UsageError: the engine is closed.
        """
        executor = self._executor
        if executor is None:
            executor = self.executor  # raises
        arrays = self._check.check(inputs)
        if all(map(SIZE, arrays.values())):
            return executor.run(arrays)
        return run_empty(executor, arrays, self.inputs, self.outputs)

    def warm_up(self, example: Mapping[str, Any], *further: Mapping[str, Any]) -> None:
        """Do now what makes first runs slow, as a service does before it takes requests.

        Each example is run once, so that its shapes have what is compiled for them alone: of the usual ones,
        three at most. After it all other shapes share what is compiled for any of them here, and no run
        compiles; on a GPU other shapes are still recorded when they first come.

        Args:
            example, further: inputs as for `run`, of the shapes that are usual; their values do not matter.

        Raises:
            DataError, UsageError: as for `run`.
        """
        for inputs in (example, *further):
            self.run(inputs)
        if isinstance(self.executor, Settles):
            self.executor.settle()

    def run_device(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name as torch's tensors, for tensors on the engine's GPU: nothing passes the host.

        Computed on the caller's current stream, without waiting. Numbers are cast to the types that the
        engine takes. Of no samples it is as in `run`.

        Raises:
            DataError: a name or shape is wrong, or a tensor lies elsewhere; names the input.
            UsageError: the engine is closed, or not for a GPU.
        """
        executor = self.executor
        if not isinstance(executor, RunsThere):
            raise _not_for_a_gpu(self.name)
        if self._has_values(inputs):
            return executor.run_device(inputs)
        return self._run_empty_there(executor, inputs)

    def _has_values(self, tensors: Mapping[str, Any]) -> bool:
        """Whether every tensor has some; their shapes are checked."""
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self._check.check_shapes(shapes)
        return not any(0 in shape for shape in shapes.values())

    def _run_empty_there(self, lane: Runs, inputs: Mapping[str, Any]) -> dict[str, Any]:
        from quantrt.runtime.cuda.given_tensors import run_empty_there  # torch

        assert isinstance(self.executor, RunsThere)
        return run_empty_there(lane, inputs, self.executor.device, self.inputs, self.outputs)

    def create_context(self) -> Context:
        """A lane of its own for one thread: own activations, shared weights."""
        return Context(self)

    def save(self, path: Path | str) -> None:
        """Write the engine file, wholly or not at all.

        Raises:
            DeviceError: the path cannot be written or the disk is full.
        """
        save_plan(self.plan, path)

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or sent to another process: a library's own objects cannot be.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"cannot copy {self.name}, or send it to another process",
            hint="`engine.save(path)`, and `quantrt.load(path)` in that process",
        )

    def close(self) -> None:
        """Free the library's model; runs in progress must have ended. Closing twice is allowed."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        plan = self.plan
        marks = ([] if plan.is_calibrated else [UNCALIBRATED]) + (
            ["closed"] if self._executor is None else []
        )
        words = [self.name, plan.precision, f"on {plan.model.library}", *(f"[{mark}]" for mark in marks)]
        inputs, outputs = (", ".join(map(str, specs)) for specs in (plan.inputs, plan.outputs))
        return f"<Engine {' '.join(words)}: {inputs} -> {outputs}>"

    def _repr_html_(self) -> str:
        return engine_html(self.plan, self.name, self.notes)

    def __rich__(self) -> Table:
        return engine_table(self.plan, self.name, self.notes)


class Context:
    """One thread's lane through an engine; for one thread at a time. Can be used in a `with` block."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lane: ExecutorContext | None = engine.executor.create_context()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Outputs by name; see Engine.run.

        Raises:
            UsageError: the context or its engine is closed.
        """
        if self._lane is None:
            raise UsageError(f"cannot use a context of {self._engine.name}: it is closed")
        if self._engine._executor is None:
            self.close()
            return self._engine.run(inputs)  # raises
        arrays = self._engine._check.check(inputs)
        if all(map(SIZE, arrays.values())):
            return self._lane.run(arrays)
        return run_empty(self._lane, arrays, self._engine.inputs, self._engine.outputs)

    def device_inputs(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Tensors on the engine's GPU to put inputs into, by name: `run_device` of them copies nothing.

        They are torch's, speak DLPack, and stay the same ones while this context keeps their shapes. Write
        to them on the stream that runs them.

        Raises:
            DataError: a name or shape is wrong; names the input.
            UsageError: the context or its engine is closed, or not for a GPU.
        """
        lane = self._lane_there()
        self._engine._check.check_shapes({name: tuple(shape) for name, shape in shapes.items()})
        return lane.device_inputs(shapes)

    def run_device(self, inputs: Mapping[str, Any], *, copies: bool = True) -> dict[str, Any]:
        """Outputs by name as torch's tensors; see Engine.run_device.

        Args:
            copies: False gives the memory that the engine writes, which the context's next run overwrites.
        """
        lane = self._lane_there()
        if self._engine._has_values(inputs):
            return lane.run_device(inputs, copies=copies)
        return self._engine._run_empty_there(lane, inputs)

    def _lane_there(self) -> ContextThere:
        if self._lane is None or self._engine._executor is None:
            self.close()
            raise UsageError(f"cannot use a context of {self._engine.name}: it is closed")
        if not isinstance(self._lane, ContextThere):
            raise _not_for_a_gpu(self._engine.name)
        return self._lane

    def close(self) -> None:
        """Free the lane; the engine stays open."""
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _not_for_a_gpu(name: str) -> UsageError:
    return UsageError(f"{name} is not for a GPU: it takes arrays in host memory", hint="`run(...)`")


def _open(plan: Plan, name: str) -> Executor:
    """The plan's model, with errors that name the engine."""
    with _naming(name):
        return open_executor(plan.model, plan.options, output_names=[spec.name for spec in plan.outputs])


def _weights_in_memory(plan: Plan) -> Plan:
    """The plan with its weights in memory, where a library reads them for as long as the engine lives.

    A file that somebody overwrites is nothing to the engine then; see decision 0031. A GPU has its own copy.
    """
    weights = plan.model.weights
    if plan.model.library == "cuda" or sum(array.nbytes for array in weights.values()) > MOST_COPIED_BYTES:
        return plan
    own = {name: in_memory(array) for name, array in weights.items()}
    return replace(plan, model=replace(plan.model, weights=own))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say of which engine a DeviceError is."""
    try:
        yield
    except DeviceError as error:
        error.message = f"cannot open {name}: {error.message}"
        raise
