# SPDX-License-Identifier: Apache-2.0
"""A private lane through a program: own stream, activations and CUDA graphs; shared weights and runners."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch

from quantrt.errors import UsageError
from quantrt.operators.element_types import to_numpy
from quantrt.runtime.cuda.own_stream import OwnStream
from quantrt.runtime.cuda.steps.recording import Recording, record
from quantrt.runtime.cuda.steps.step_timers import TimedRepeats
from quantrt.runtime.cuda.steps.steps import Around, FreshMemory, OpenProgram, Values, run_steps
from quantrt.runtime.cuda.tensors import tensor_on, torch_dtype
from quantrt.runtime.profile_check import ProfileCheck

__all__ = ["MAX_RECORDINGS", "Lane", "Shapes"]

MAX_RECORDINGS = 16
"""CUDA graphs that a lane keeps; the one not used for longest makes room."""

Shapes = tuple[tuple[int, ...], ...]
"""Of the inputs, in their order."""


class Lane:
    """Runs a program; one thread at a time, others wait.

    Args:
        records: whether each set of shapes is recorded as a CUDA graph; otherwise steps run one by one.
    """

    def __init__(self, opened: OpenProgram, *, records: bool) -> None:
        self._opened: OpenProgram | None = opened
        self._records = records
        self._lock = threading.Lock()
        self._device = opened.assets.device
        self._stream = OwnStream(self._device) if self._device.type == "cuda" else None
        self._recordings: OrderedDict[Shapes, Recording] = OrderedDict()
        self._profiles = ProfileCheck(opened.program.notes)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, owned by the caller; see Executor.run."""
        self._profiles.check(inputs)
        with self._entered() as opened:
            given = {name: tensor_on(inputs[name]) for name, _ in opened.program.inputs}
            if self._records:
                recording = self._recording(opened, given)
                recording.load(given)
                recording.replay()
                found = recording.unload()
                self._wait()
            else:
                found = self._run_eagerly(opened, given)
            return {name: _as_caller_wants(found[name], dtype) for name, _, dtype in opened.program.outputs}

    def run_device(self, inputs: Mapping[str, torch.Tensor], *, copies: bool) -> dict[str, torch.Tensor]:
        """Outputs by name as tensors on the device, computed on the caller's current stream.

        A stream that torch did not make has to live until the lane is closed.

        Args:
            inputs: tensors on the device; those of `device_inputs` are read where they are.
            copies: False: tensors of a recording are returned as they are, valid until the lane's next run.
        """
        self._profiles.check(inputs)
        with self._alone() as opened, self._on_device():
            if self._records:
                recording = self._recording(opened, inputs)
                self._go_to_caller(recording)
                _fill(recording.inputs, inputs)
                recording.replay()
                found: Mapping[str, torch.Tensor] = recording.outputs
            else:
                self._go_to_caller()
                found = self._run_eagerly(opened, inputs)
            return {
                name: found[name].to(self._device, torch_dtype(dtype), copy=copies)
                for name, _, dtype in opened.program.outputs
            }

    def device_inputs(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, torch.Tensor]:
        """Tensors to put inputs into: a run of them copies nothing. They are the CUDA graph's own, if any.

        Args:
            shapes: of the inputs, by name.
        """
        self._profiles.check({name: torch.empty(tuple(n), device="meta") for name, n in shapes.items()})
        with self._alone() as opened, self._on_device():
            given = {
                name: torch.zeros(tuple(shapes[name]), dtype=torch_dtype(dtype), device=self._device)
                for name, dtype in opened.program.inputs
            }
            return dict(self._recording(opened, given).inputs) if self._records else given

    def prepare(self, inputs: Mapping[str, np.ndarray], *, waits: bool = True) -> Callable[[], object]:
        """One run of inputs that are on the device already.

        Args:
            waits: until its outputs are there; otherwise it is enqueued on the caller's current stream.
        """
        given, shapes = self._put(inputs)

        def run() -> None:
            with self._entered() as opened:
                self._compute(opened, given)
                self._wait()

        def enqueue() -> None:
            if self._replayed(shapes):
                return
            with self._alone() as opened, self._on_device():
                self._compute(opened, given)

        return run if waits else enqueue

    def prepare_timed(self, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """As `prepare`; on a GPU it tells the times of many runs by events, see TimedRepeats."""
        run = self.prepare(inputs)
        if self._stream is None:
            return run
        given, _ = self._put(inputs)

        def compute() -> None:
            with self._entered() as opened:
                self._compute(opened, given)

        return TimedRepeats(run, compute, partial(torch.cuda.stream, self._stream.stream))

    def _put(self, inputs: Mapping[str, np.ndarray]) -> tuple[dict[str, torch.Tensor], Shapes]:
        """The inputs on the device, where the CUDA graph for their shapes reads them too."""
        self._profiles.check(inputs)
        with self._entered() as opened:
            given = {name: tensor_on(inputs[name]).to(self._device) for name, _ in opened.program.inputs}
            if self._records:
                _fill(self._recording(opened, given).inputs, given)
            self._wait()
            return given, _shapes_of(opened, given)

    def _replayed(self, shapes: Shapes) -> bool:
        """Enqueue the CUDA graph for these shapes on the caller's stream, where there is one."""
        with self._lock:
            recording = self._recordings.get(shapes)
            if recording is None:
                return False
            self._recordings.move_to_end(shapes)
            self._go_to_caller(recording)
            recording.replay()
        return True

    def run_steps_eagerly(self, inputs: Mapping[str, np.ndarray], around: Around) -> None:
        """One pass step by step, `around` each (see steps.run_steps); for measuring."""
        self._profiles.check(inputs)
        with self._entered() as opened:
            given = {name: tensor_on(inputs[name]) for name, _ in opened.program.inputs}
            self._run_eagerly(opened, given, around)

    @property
    def recordings(self) -> dict[Shapes, Recording]:
        """By the shapes that they are for."""
        return dict(self._recordings)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self._device

    def check(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Fail unless a profile admits the inputs' shapes."""
        self._profiles.check(inputs)

    def entered(self) -> AbstractContextManager[OpenProgram]:
        """The program, for this thread alone and on the lane's stream; for what times a run part by part."""
        return self._entered()

    def recording(self, opened: OpenProgram, inputs: Mapping[str, torch.Tensor]) -> Recording | None:
        """The CUDA graph for the inputs' shapes, inside `entered`; None in a lane that runs step by step."""
        return self._recording(opened, inputs) if self._records else None

    def wait(self) -> None:
        """Until the lane's stream has done all that it was given."""
        self._wait()

    def close(self) -> None:
        """Free everything but what is shared. Closing twice is allowed."""
        with self._lock:
            self._opened = None
            self._wait()
            while self._recordings:
                self._recordings.popitem()[1].close()

    @contextmanager
    def _alone(self) -> Iterator[OpenProgram]:
        """The program, for this thread alone."""
        with self._lock, torch.no_grad():
            if self._opened is None:
                raise UsageError("cannot run in a context that is closed", hint="`create_context()` again")
            yield self._opened

    @contextmanager
    def _entered(self) -> Iterator[OpenProgram]:
        """The program, for this thread alone and on the lane's stream."""
        with self._alone() as opened, self._on_stream():
            yield opened

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else self._stream.current()

    def _on_device(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.device(self._device)

    def _go_to_caller(self, recording: Recording | None = None) -> None:
        """What comes next, of a recording where there is one, goes to the caller's stream."""
        if self._stream is None:
            return
        caller = self._stream.at_caller()
        if recording is not None:
            recording.keep_for(caller)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.wait()

    def _recording(self, opened: OpenProgram, inputs: Mapping[str, torch.Tensor]) -> Recording:
        """The CUDA graph for the shapes of the inputs; where there is none, made on the lane's own stream.

        The default stream, which may be the caller's, cannot be recorded.
        """
        key = _shapes_of(opened, inputs)
        recording = self._recordings.get(key)
        if recording is not None:
            self._recordings.move_to_end(key)
            return recording
        if len(self._recordings) >= MAX_RECORDINGS:
            self._wait()
            self._recordings.popitem(last=False)[1].close()
        shapes = dict(zip((name for name, _ in opened.program.inputs), key, strict=True))
        self._go_to_caller()  # which may be making the inputs
        with self._on_stream():
            recording = record(opened, shapes, lambda values: _fill(values, inputs))
        self._recordings[key] = recording
        return recording

    def _compute(self, opened: OpenProgram, given: Mapping[str, torch.Tensor]) -> None:
        """Once, on inputs that are where they are read, on the current stream."""
        if self._records:
            recording = self._recording(opened, given)
            self._go_to_caller(recording)
            recording.replay()
        else:
            self._go_to_caller()
            self._run_eagerly(opened, given)

    def _run_eagerly(
        self, opened: OpenProgram, given: Mapping[str, torch.Tensor], around: Around | None = None
    ) -> Values:
        """The outputs by name, in the types of their buffers."""
        values: Values = {
            name: given[name].to(self._device, torch_dtype(dtype)) for name, dtype in opened.program.inputs
        }
        run_steps(opened, values, FreshMemory(self._device), around)
        return {name: values[buffer] for name, buffer, _ in opened.program.outputs}


def _shapes_of(opened: OpenProgram, inputs: Mapping[str, torch.Tensor]) -> Shapes:
    return tuple(tuple(inputs[name].shape) for name, _ in opened.program.inputs)


def _fill(tensors: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> None:
    """Copy what does not lie there already."""
    for name, tensor in tensors.items():
        if not _is_same_memory(given[name], tensor):
            tensor.copy_(given[name], non_blocking=given[name].device.type != "cpu")


def _is_same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are one, also where DLPack was between them."""
    is_there = one.data_ptr() == other.data_ptr() and one.device == other.device
    return is_there and one.dtype == other.dtype and one.stride() == other.stride()


def _as_caller_wants(tensor: torch.Tensor, dtype: str) -> np.ndarray:
    """A copy in host memory of the type that the caller gets."""
    whole = torch.empty(tensor.shape, dtype=torch_dtype(dtype))
    return to_numpy(whole.copy_(tensor))
