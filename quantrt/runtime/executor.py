# SPDX-License-Identifier: Apache-2.0
"""What runs a library's model: one executor per library, behind one protocol."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from quantrt.errors import DeviceError, InternalError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.option_checks import check_choice
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.runtime.cuda.device.available import check_gpu

__all__ = [
    "ContextThere",
    "Executor",
    "ExecutorContext",
    "HasClock",
    "Lanes",
    "LanesBeside",
    "ReportsMemory",
    "RunsThere",
    "Settles",
    "check_library",
    "open_executor",
]

LIBRARIES = ("onnxruntime", "openvino", "cuda")


class ExecutorContext(Protocol):
    """A private lane through an executor: own activations, shared weights. For one thread at a time."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """As Executor.run."""

    def close(self) -> None:
        """Free what the context holds; the executor stays open."""


class Executor(Protocol):
    """A library's model, loaded and compiled. Every method may be called from several threads at once."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What the library's model takes, as the library tells it."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What `run` returns, in its order."""

    @property
    def parallel_runs(self) -> int:
        """How many simultaneous runs keep the machine busy: 1 when tuned for latency."""

    @property
    def compiled_shapes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Input shapes that got a compiled model of their own, one tuple of shapes each."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, owned by the caller, for inputs whose names and types were checked before.

        Raises:
            DataError: the library refuses the shapes or values.
        """

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """One run for timing: on a GPU, of inputs that are there already, until its outputs are there."""

    def create_context(self) -> ExecutorContext:
        """A lane of its own for one thread."""

    def close(self) -> None:
        """Free the library's model. Runs in progress must have ended."""


@runtime_checkable
class ReportsMemory(Protocol):
    """An executor that knows what it takes of a GPU's memory."""

    def memory_report(self) -> dict[str, Any]:
        """Bytes, JSON-ready; see CudaExecutor.memory_report."""


@runtime_checkable
class RunsThere(Protocol):
    """An executor that takes and gives torch's tensors on its own device."""

    @property
    def device(self) -> Any:
        """The torch.device."""

    def run_device(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name; see CudaExecutor.run_device."""


@runtime_checkable
class ContextThere(ExecutorContext, Protocol):
    """A lane of an executor that takes and gives torch's tensors on its own device."""

    def run_device(self, inputs: Mapping[str, Any], *, copies: bool = True) -> dict[str, Any]:
        """Outputs by name; see CudaExecutor.run_device."""

    def device_inputs(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Tensors to put inputs into; see CudaContext.device_inputs."""


class Lanes(Protocol):
    """Runs that share nothing but weights, each on one thread."""

    @property
    def parallel_runs(self) -> int:
        """How many there may be at once."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """As Executor.run, from any thread."""

    def close(self) -> None:
        """Free what they hold."""


@runtime_checkable
class LanesBeside(Protocol):
    """An executor whose compiled models can be had again, to be run by one thread each."""

    def lanes(self, inputs: Mapping[str, np.ndarray]) -> Lanes | None:
        """What runs inputs of these shapes by the same kernels; None where it would be no other."""


@runtime_checkable
class Settles(Protocol):
    """An executor that compiles for the first input shapes, and can end that: all others share a model."""

    def settle(self) -> None:
        """Compile that model."""


@runtime_checkable
class HasClock(Protocol):
    """An executor whose device may have a clock of its own."""

    def prepare_timed(self, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """As Executor.prepare; what it returns has `times_ms(count)` too, where there is such a clock."""


def open_executor(
    model: LibraryModel, options: ExecOptions, *, output_names: Sequence[str] | None = None
) -> Executor:
    """Load `model` with its library and compile it as `options` say.

    Args:
        output_names: which outputs `run` returns, in order; None for all, in the library's order.

    Raises:
        UsageError: no such library.
        DeviceError: the library is not installed, or cannot do what `options` ask on this machine.
        ModelError: the library cannot load the model.
    """
    check_library(model.library)
    if model.library == "onnxruntime":
        from quantrt.runtime.onnxruntime.executor import OnnxRuntimeExecutor

        return OnnxRuntimeExecutor(model, options, output_names=output_names)
    if model.library == "cuda":
        return _open_cuda(model, output_names)
    from quantrt.runtime.openvino.guarded import GuardedOpenVino

    return GuardedOpenVino(model, options, output_names=output_names)


def check_library(library: str, *, compiles: bool = False) -> None:
    """Fail unless `library` is one that QuantRT knows and that is installed here.

    Args:
        compiles: whether kernels will be compiled for it too; to run them no compiler is needed.

    Raises:
        UsageError: it is none of LIBRARIES.
        DeviceError: it is not installed, or for "cuda" its packages are not, or there is no usable GPU.
    """
    check_choice("library", library, LIBRARIES)
    if library == "cuda":
        check_gpu(compiles=compiles)
    elif importlib.util.find_spec(library) is None:
        raise DeviceError(
            f"cannot run a model of the library '{library}': it is not installed here",
            hint=f"`pip install {library}`",
        )


def _open_cuda(model: LibraryModel, output_names: Sequence[str] | None) -> Executor:
    from quantrt.plan.program_json import program_from_model
    from quantrt.runtime.cuda.executor import CudaExecutor, specs_of  # imports torch, which is optional

    program = program_from_model(model)
    inputs, outputs = specs_of(program)
    if output_names is not None:
        by_name = {spec.name: spec for spec in outputs}
        missing = [name for name in output_names if name not in by_name]
        if missing:
            raise InternalError(f"the program has no output '{missing[0]}'", got=", ".join(by_name))
        outputs = tuple(by_name[name] for name in output_names)
    return CudaExecutor(program, inputs, outputs)
