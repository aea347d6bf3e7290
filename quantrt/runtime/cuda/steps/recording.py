# SPDX-License-Identifier: Apache-2.0
"""One pass over a program for one set of input shapes, recorded as a CUDA graph in memory of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from quantrt.errors import DeviceError, QuantRtError
from quantrt.runtime.cuda.steps.host_copies import RecordCopies, ReuseCopies
from quantrt.runtime.cuda.steps.steps import FreshMemory, OpenProgram, Values, run_steps
from quantrt.runtime.cuda.steps.traced_memory import ArenaMemory, TracedMemory
from quantrt.runtime.cuda.tensors import is_dense, torch_dtype

__all__ = ["Recording", "RecordingMemory", "pinned_like", "record"]

_ONE_AT_A_TIME = threading.Lock()
"""Held while a graph is recorded: torch can record one in a process at a time (torch.cuda.graph)."""


@dataclass(frozen=True)
class RecordingMemory:
    """What a recording takes on the device.

    Attributes:
        sum_bytes: of everything that steps ask for, side by side.
        arena_bytes: the same with lifetimes that do not overlap sharing memory.
        pool_bytes: what runners allocate on their own, in the graph's pool.
        input_bytes: of the inputs.
    """

    sum_bytes: int
    arena_bytes: int
    pool_bytes: int
    input_bytes: int


class Recording:
    """A CUDA graph with everything it reads and writes. Used by one thread at a time.

    Attributes:
        inputs: device tensors that the graph reads, by name.
        outputs: what it writes, by name: device tensors, or host tensors that depend on shapes alone.
        memory: what it takes.
    """

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        inputs: Mapping[str, torch.Tensor],
        outputs: Mapping[str, torch.Tensor],
        memory: RecordingMemory,
        kept: Sequence[torch.Tensor],
    ) -> None:
        self._graph = graph
        self._kept = tuple(kept)
        self._streams: set[int] = set()
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)
        self.memory = memory
        self._staged_inputs: dict[str, torch.Tensor] = {}
        self._staged_outputs: dict[str, torch.Tensor] = {}

    def replay(self) -> None:
        """Run everything once, on the current stream."""
        self._graph.replay()

    def keep_for(self, stream: torch.cuda.Stream) -> None:
        """Its memory, once freed, is given to nobody before `stream` has done what it has then.

        torch knows this of the stream that the memory was made on; of every other it has to be told.
        """
        if stream.cuda_stream in self._streams:
            return
        self._streams.add(stream.cuda_stream)
        for tensor in (*self._kept, *self.inputs.values(), *self.outputs.values()):
            if tensor.device.type == "cuda":
                tensor.record_stream(stream)

    def load(self, given: Mapping[str, torch.Tensor]) -> None:
        """Copy tensors in host memory into the inputs, by way of pinned memory that is read later."""
        for name, tensor in self.inputs.items():
            tensor.copy_(self._staged(name, given[name]), non_blocking=True)

    def stage(self, given: Mapping[str, torch.Tensor]) -> None:
        """Copy tensors in host memory to pinned memory alone, which nothing may be reading."""
        for name in self.inputs:
            self._staged(name, given[name])

    def copy_in(self) -> None:
        """Copy what was staged last into the inputs, on the current stream."""
        for name, tensor in self.inputs.items():
            tensor.copy_(self._staged_inputs[name], non_blocking=True)

    def _staged(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The input's pinned memory, with this value."""
        if name not in self._staged_inputs:
            self._staged_inputs[name] = pinned_like(self.inputs[name])
        return self._staged_inputs[name].copy_(tensor)

    def unload(self) -> dict[str, torch.Tensor]:
        """Copies of the outputs in pinned memory, filled once the stream is synchronized."""
        staged = self._staged_outputs
        for name, tensor in self.outputs.items():
            if tensor.device.type == "cpu":
                staged[name] = tensor
                continue
            if name not in staged:
                staged[name] = pinned_like(tensor)
            staged[name].copy_(tensor, non_blocking=True)
        return staged

    def close(self) -> None:
        """Free the graph and its memory; nothing may be running it."""
        self._graph.reset()
        self._kept = ()
        for tensors in (self.inputs, self.outputs, self._staged_inputs, self._staged_outputs):
            tensors.clear()


def record(
    opened: OpenProgram, shapes: Mapping[str, Sequence[int]], fill: Callable[[Values], None]
) -> Recording:
    """Run a program three times on the current stream: to warm up, to see what it needs, and to record it.

    What steps keep from their first run, such as constants on the device, must be there before copies are
    watched: the recorded run would not repeat them.

    Args:
        shapes: of the inputs, by name.
        fill: puts the values of a run into the inputs, so that the first pass reads nothing senseless.

    Raises:
        DataError: a step cannot take these shapes; names its region.
        DeviceError: out of memory, or a step cannot be recorded; names its region.
    """
    device = opened.assets.device
    stream = torch.cuda.current_stream(device)
    inputs = {
        name: torch.empty(tuple(shapes[name]), dtype=torch_dtype(dtype), device=device)
        for name, dtype in opened.program.inputs
    }
    fill(inputs)
    run_steps(opened, dict(inputs), FreshMemory(device))
    traced, copies = TracedMemory(opened), RecordCopies()
    with copies:
        run_steps(opened, dict(inputs), traced)
    stream.synchronize()
    slots, plan = traced.plan()
    arena = _arena(plan.size_bytes, device, traced.largest)
    graph, outputs, pool_bytes = _capture(opened, inputs, ArenaMemory(opened, slots, arena), copies.copies)
    memory = RecordingMemory(
        sum_bytes=plan.sum_bytes,
        arena_bytes=plan.size_bytes,
        pool_bytes=pool_bytes,
        input_bytes=sum(tensor.nbytes for tensor in inputs.values()),
    )
    return Recording(graph, inputs, outputs, memory, (arena, *copies.copies))


def pinned_like(tensor: torch.Tensor) -> torch.Tensor:
    """Page-locked host memory in the layout of a tensor without gaps."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, pin_memory=True)


def _capture(
    opened: OpenProgram, inputs: Values, memory: ArenaMemory, copies: Sequence[torch.Tensor]
) -> tuple[torch.cuda.CUDAGraph, dict[str, torch.Tensor], int]:
    """The graph, its outputs, and the bytes of its pool."""
    device = opened.assets.device
    graph = torch.cuda.CUDAGraph()
    values, outputs, pool_bytes = dict(inputs), {}, 0
    stream = torch.cuda.current_stream(device)
    try:
        # Other threads may allocate and copy meanwhile: their calls do not concern this recording.
        with _ONE_AT_A_TIME, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            before = torch.cuda.memory_reserved(device)
            with ReuseCopies(copies):
                run_steps(opened, values, memory)
                outputs = {name: _kept(values[buffer], inputs) for name, buffer, _ in opened.program.outputs}
            pool_bytes = torch.cuda.memory_reserved(device) - before
    except (QuantRtError, RuntimeError) as error:
        raise _cannot_record(error) from error
    return graph, outputs, pool_bytes


def _kept(tensor: torch.Tensor, inputs: Values) -> torch.Tensor:
    """An output without gaps that is not an input's own memory, which the next run overwrites."""
    if tensor.device.type == "cpu":
        return tensor.clone()
    own = tensor.untyped_storage().data_ptr()
    is_input = any(own == other.untyped_storage().data_ptr() for other in inputs.values())
    if is_dense(tensor) and not is_input:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _arena(size_bytes: int, device: torch.device, largest: Callable[[], str]) -> torch.Tensor:
    try:
        return torch.empty(size_bytes, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"{device} has no room for the {size_bytes / 2**20:.1f} MiB of a run's activations, "
            f"the largest {largest()}",
            got=str(error).partition(". ")[0],
            hint="a smaller --batch, fewer contexts, or freeing memory on the GPU",
        ) from error


def _cannot_record(error: BaseException) -> QuantRtError:
    """What to say about a recording that failed: the step's own error, not that of ending the recording."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, QuantRtError):
        cause = cause.__context__
    if cause is None:
        return DeviceError("cannot record the program as a CUDA graph", got=str(error).partition("\n")[0])
    return DeviceError(
        f"cannot record the program as a CUDA graph: {cause.message}",
        got=cause.got,
        hint="an executor with capture=False, which runs step by step",
    )
