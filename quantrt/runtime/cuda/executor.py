# SPDX-License-Identifier: Apache-2.0
"""Runs a program: on a GPU as CUDA graphs, one per set of input shapes; on the CPU step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from quantrt.errors import UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.program import Program
from quantrt.runtime.cuda.device.available import open_device
from quantrt.runtime.cuda.device.launcher import CubinLauncher
from quantrt.runtime.cuda.given_tensors import given_tensors
from quantrt.runtime.cuda.lane import Lane, Shapes
from quantrt.runtime.cuda.steps.assets import weight_bytes
from quantrt.runtime.cuda.steps.host_copies import RecordCopies, ReuseCopies
from quantrt.runtime.cuda.steps.step_timers import timed_passes
from quantrt.runtime.cuda.steps.steps import Around, OpenProgram, open_program
from quantrt.runtime.cuda.timed_runs import TimedRuns
from quantrt.runtime.request_pool import RequestPool

__all__ = ["CudaContext", "CudaExecutor", "specs_of"]

OWN_LANES = 2
"""Lanes of the executor's own `run`: while one computes, the other's arrays are copied."""


class CudaExecutor:
    """A program, opened on one device. Every method may be called from several threads at once.

    Attributes:
        inputs, outputs: what callers see.
        parallel_runs: 1: one run keeps the GPU busy.

    Args:
        device: "cuda", "cuda:1", or "cpu", where steps run one by one with kernels in Triton's interpreter.
        capture: False runs step by step on a GPU too.

    Raises:
        DeviceError: there is no such GPU, no machine code fits it, or it is out of memory.
        ModelError: a step cannot be opened; names its region.
    """

    parallel_runs = 1

    def __init__(
        self,
        program: Program,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        device: str = "cuda",
        capture: bool = True,
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._program = _ordered(program, self.outputs)
        self._device = open_device(device)
        self._lock = threading.Lock()
        self._lanes: list[Lane] = []
        self._opened: OpenProgram | None = open_program(self._program, self._device)
        is_fixed = not any(step.reads_values for step in program.steps)
        self._records = capture and is_fixed and self._device.type == "cuda"
        self._pool = RequestPool(self._make_lane, OWN_LANES if self._device.type == "cuda" else 1)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self._device

    @property
    def compiled_shapes(self) -> tuple[Shapes, ...]:
        """Input shapes that have a CUDA graph, in any context."""
        return tuple(dict.fromkeys(shapes for lane in self._open_lanes() for shapes in lane.recordings))

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, owned by the caller, in the order of `outputs`; see Executor.run."""
        with self._lane() as lane:
            return lane.run(inputs)

    def run_device(self, inputs: Mapping[str, Any], *, copies: bool = True) -> dict[str, torch.Tensor]:
        """Outputs by name for tensors on the device, without a copy to the host and without waiting.

        Args:
            inputs: torch tensors, or anything that speaks DLPack, on this device.
            copies: False returns memory that the next run of the executor overwrites.

        Raises:
            DataError: an input is missing or lies elsewhere.
        """
        given = self._on_device(inputs)
        with self._lane() as lane:
            return lane.run_device(given, copies=copies)

    def prepare(self, inputs: Mapping[str, np.ndarray], *, waits: bool = True) -> Callable[[], object]:
        """One run for timing; see Executor.prepare. With waits=False it is only enqueued."""
        with self._lane() as lane:
            return lane.prepare(inputs, waits=waits)

    def prepare_timed(self, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """One run for timing, on a GPU by its own clock; see HasClock."""
        with self._lane() as lane:
            return lane.prepare_timed(inputs)

    def create_context(self, *, capture: bool = True) -> CudaContext:
        """A lane of its own for one thread: own activations and CUDA graphs, shared weights.

        Args:
            capture: False runs step by step, without CUDA graphs.
        """
        return CudaContext(self, self._make_lane(capture=capture))

    @property
    def watch_method(self) -> str:
        """How `watch` takes times, one phrase."""
        if self._device.type == "cuda":
            return "CUDA events around every step, without a CUDA graph"
        return "the clock around every step, on the CPU"

    def watch(
        self, inputs: Mapping[str, np.ndarray], *, runs: int, warmup_runs: int
    ) -> list[list[tuple[str, float]]]:
        """For every run (region, milliseconds) of every step, run one by one in a lane of its own.

        What steps copy from host memory is there before: such a copy makes the host wait for the device,
        which would then wait for the host at every step that follows.
        """
        steps, copies = self._program.steps, RecordCopies()
        lane = self._make_lane()

        def run(around: Around) -> None:
            with ReuseCopies(copies.copies):
                lane.run_steps_eagerly(inputs, around)

        try:
            lane.run_steps_eagerly(inputs, _alone)  # what steps keep from their first run is made here
            with copies:
                lane.run_steps_eagerly(inputs, _alone)
            is_gpu = self._device.type == "cuda"
            found = list(timed_passes(run, len(steps), count=warmup_runs + runs, is_gpu=is_gpu))
        finally:
            lane.close()
            self._drop(lane)
        return [
            [(step.region, time_ms) for step, time_ms in zip(steps, row, strict=True)]
            for row in found[warmup_runs:]
        ]

    def memory_report(self) -> dict[str, Any]:
        """Bytes on the device, JSON-ready.

        Returns:
            weight_bytes; memory_before_bytes and memory_after_bytes: activations of all recordings side by
            side, and with shared memory; pool_bytes: what runners allocate on their own; input_bytes; and
            "recordings", the same for each set of shapes.
        """
        recordings = [item for lane in self._open_lanes() for item in lane.recordings.items()]
        rows = [
            {
                "shapes": [list(shape) for shape in shapes],
                "memory_before_bytes": recording.memory.sum_bytes,
                "memory_after_bytes": recording.memory.arena_bytes,
                "pool_bytes": recording.memory.pool_bytes,
                "input_bytes": recording.memory.input_bytes,
            }
            for shapes, recording in recordings
        ]
        names = ("memory_before_bytes", "memory_after_bytes", "pool_bytes", "input_bytes")
        totals = {name: sum(int(str(row[name])) for row in rows) for name in names}
        weights = 0 if self._opened is None else weight_bytes(self._opened.assets.weights)
        return {"weight_bytes": weights, **totals, "recordings": rows}

    def close(self) -> None:
        """Free everything on the device. Runs in progress must have ended; closing twice is allowed."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        for lane in self._open_lanes():
            lane.close()
        for launcher in opened.assets.kernels.values():
            if isinstance(launcher, CubinLauncher):
                launcher.close()
        for plan in opened.assets.plans.values():
            plan.close()

    def _make_lane(self, *, capture: bool = True) -> Lane:
        opened = self._opened
        if opened is None:
            raise UsageError("cannot use an executor that is closed")
        lane = Lane(opened, records=self._records and capture)
        with self._lock:
            self._lanes.append(lane)
        return lane

    def _open_lanes(self) -> list[Lane]:
        with self._lock:
            return list(self._lanes)

    def _drop(self, lane: Lane) -> None:
        with self._lock:
            self._lanes.remove(lane)

    @contextmanager
    def _lane(self) -> Iterator[Lane]:
        lane = self._pool.take()
        try:
            yield lane
        finally:
            self._pool.give(lane)

    def _on_device(self, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        return given_tensors(inputs, (name for name, _ in self._program.inputs), self._device)


class CudaContext:
    """One thread's lane through an executor; see ExecutorContext."""

    def __init__(self, executor: CudaExecutor, lane: Lane) -> None:
        self._executor = executor
        self._lane = lane

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name; see Executor.run."""
        return self._lane.run(inputs)

    def run_device(self, inputs: Mapping[str, Any], *, copies: bool = True) -> dict[str, torch.Tensor]:
        """Outputs by name on the device; see CudaExecutor.run_device."""
        return self._lane.run_device(self._executor._on_device(inputs), copies=copies)

    def device_inputs(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, torch.Tensor]:
        """Tensors to put inputs of these shapes into, by name; see Lane.device_inputs."""
        return self._lane.device_inputs(shapes)

    def time_runs(self, inputs: Mapping[str, np.ndarray], *, copies: bool, spins: bool) -> TimedRuns:
        """Runs of these inputs with the times of their parts; see TimedRuns."""
        return TimedRuns(self._lane, inputs, copies=copies, spins=spins)

    def close(self) -> None:
        """Free the lane; the executor stays open. Closing twice is allowed."""
        self._lane.close()
        if self._lane in self._executor._open_lanes():
            self._executor._drop(self._lane)


def _alone(number: int, call: Callable[[], None]) -> None:
    """Around a step: nothing."""
    call()


def specs_of(program: Program) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs as the program alone tells them: types, and no shapes."""
    inputs = tuple(TensorSpec(name, dtype, None) for name, dtype in program.inputs)
    return inputs, tuple(TensorSpec(name, dtype, None) for name, _, dtype in program.outputs)


def _ordered(program: Program, outputs: Sequence[TensorSpec]) -> Program:
    """The program with the outputs that are wanted, in their order."""
    rows = {row[0]: row for row in program.outputs}
    missing = [spec.name for spec in outputs if spec.name not in rows]
    if missing:
        raise UsageError(f"the program has no output '{missing[0]}'", expected=", ".join(rows))
    return replace(program, outputs=tuple(rows[spec.name] for spec in outputs))
