# SPDX-License-Identifier: Apache-2.0
"""Runs a model through ONNX Runtime's CPU kernels.

Weights stay where they are, in the engine file's mapping when they come from one; only kernels that repack
weights keep a copy. That takes two calls: `add_external_initializers` lets the graph optimizers see them, but
alone copies every weight into the session's arena; `add_initializer` makes the kernels read them in place.

A latency session runs each call on all threads, which look for work a millisecond longer. A throughput
session runs each call on the thread that makes it, so that `parallel_runs` simultaneous calls fill the
machine without contending for one pool. Shapes that one thread runs faster have a session of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from quantrt.errors import DataError, DeviceError, InternalError, ModelError
from quantrt.ir.no_memory import check_memory
from quantrt.ir.ort_options import KEEP_FLOATS, KEEP_PAIRS, SPIN_BRIEFLY
from quantrt.ir.tensor_spec import Dim, TensorSpec
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.runtime.error_text import library_reason
from quantrt.threads import bounded_threads, usable_cores

__all__ = ["OnnxRuntimeContext", "OnnxRuntimeExecutor"]

_FLOAT8 = (17, 18, 19, 20)
"""ONNX's numbers of the float8 types."""

_TYPE_TAGS = (0x10, 0x18)
"""In front of them in a file: of a tensor's type, of an attribute's integer."""

_TYPE_ATTRIBUTES = ("to", "output_dtype")

_FATAL_ONLY = 4  # OrtLoggingLevel: what the library logs as an error, it also raises

_ORT_ERRORS: tuple[type[Exception], ...] = (
    ort_errors.EPFail,
    ort_errors.EngineError,
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NoModel,
    ort_errors.NoSuchFile,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    RuntimeError,
    ValueError,
)

_NUMPY_NAMES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
}


class OnnxRuntimeExecutor:
    """An ONNX Runtime session over weights that it does not own.

    Args:
        session_options: to start from; threads, logging and weights are set in them.
    """

    def __init__(
        self,
        model: LibraryModel,
        options: ExecOptions,
        *,
        output_names: Sequence[str] | None = None,
        session_options: onnxruntime.SessionOptions | None = None,
    ) -> None:
        if options.float_precision != "fp32":
            raise DeviceError(
                f"ONNX Runtime cannot compute in {options.float_precision} on this CPU",
                hint="--library openvino, or fp32",
            )
        self._weights = {name: _ort_value(array) for name, array in model.weights.items()}
        is_throughput = options.hint == "throughput"
        self.parallel_runs = (options.threads or usable_cores()) if is_throughput else 1
        # 0: all physical cores, each thread pinned to one, which a count given by us would forgo.
        threads = 1 if is_throughput else options.threads or bounded_threads() or 0
        opened = partial(_open_session, model, self._weights, keeps_floats=options.keeps_floats)
        session = opened(session_options or onnxruntime.SessionOptions(), threads)
        self._session: onnxruntime.InferenceSession | None = session
        self._native = _native(session)
        self._alone_shapes = None if threads == 1 else options.one_thread_shapes
        self._alone = None
        if self._alone_shapes is not None:
            self._alone = _native(opened(onnxruntime.SessionOptions(), 1))
        self.inputs = tuple(_spec(value) for value in session.get_inputs())
        outputs = {value.name: _spec(value) for value in session.get_outputs()}
        self._output_names = list(outputs) if output_names is None else list(output_names)
        for name in self._output_names:
            if name not in outputs:
                raise InternalError(f"the ONNX Runtime model has no output '{name}'", got=", ".join(outputs))
        self.outputs = tuple(outputs[name] for name in self._output_names)
        self.compiled_shapes: tuple[tuple[tuple[int, ...], ...], ...] = ()

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name; see Executor.run."""
        native, names = self._native, self._output_names
        if self._alone is not None and tuple([x.shape for x in inputs.values()]) == self._alone_shapes:
            native = self._alone  # inputs in another order than the engine's are as right on all threads
        if native is None:
            raise InternalError("the ONNX Runtime session was used after it was closed")
        try:
            outputs = native.run(names, inputs, None)
        except _ORT_ERRORS as error:
            check_memory(error)
            raise DataError(f"ONNX Runtime cannot run these inputs: {library_reason(error)}") from error
        return {names[0]: outputs[0]} if len(names) == 1 else dict(zip(names, outputs, strict=True))

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """One run for timing; see Executor.prepare."""
        return partial(self.run, inputs)

    def create_context(self) -> OnnxRuntimeContext:
        """A session's runs share no state but its arena, so a context is the session."""
        return OnnxRuntimeContext(self)

    def close(self) -> None:
        """Free the session, then let go of the weights it reads."""
        self._session = self._native = self._alone = None
        self._weights = {}


class OnnxRuntimeContext:
    """One thread's lane: the shared session."""

    def __init__(self, executor: OnnxRuntimeExecutor) -> None:
        self._executor = executor

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name; see Executor.run."""
        return self._executor.run(inputs)

    def close(self) -> None:
        """Nothing is held."""


def _open_session(
    model: LibraryModel,
    weights: Mapping[str, onnxruntime.OrtValue],
    options: onnxruntime.SessionOptions,
    threads: int,
    *,
    keeps_floats: bool,
) -> onnxruntime.InferenceSession:
    options.add_session_config_entry(*SPIN_BRIEFLY)
    if keeps_floats:
        options.add_session_config_entry(*KEEP_FLOATS)
    options.log_severity_level = _FATAL_ONLY
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if weights:
        options.add_external_initializers(list(weights), list(weights.values()))
    for name, value in weights.items():
        options.add_initializer(name, value)
    if _has_float8(model):
        options.add_session_config_entry(*KEEP_PAIRS)
        # Its fusions of more give other results behind float8 pairs: of a ResNet-20, -45 dB (1.31).
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        return onnxruntime.InferenceSession(model.graph, options, providers=["CPUExecutionProvider"])
    except _ORT_ERRORS as error:
        check_memory(error)
        raise ModelError(f"ONNX Runtime cannot load the model: {library_reason(error)}") from error


def _native(session: onnxruntime.InferenceSession) -> Any:
    """What runs a session, without what Python does ahead of each run.

    `InferenceSession.run` asks every input for its name and compares these with those that came; those of an
    engine were compared before.
    """
    return getattr(session, "_sess", session)


def _has_float8(model: LibraryModel) -> bool:
    """Whether the model has codes that are float8."""
    if any("float8" in array.dtype.name for array in model.weights.values()):
        return True
    if not any(bytes((tag, kind)) in model.graph for tag in _TYPE_TAGS for kind in _FLOAT8):
        return False
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import ModelProto

    try:
        graph = ModelProto.FromString(model.graph).graph
    except DecodeError:
        return False  # the library says what is wrong with it
    found = {tensor.data_type for tensor in graph.initializer}
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        found |= {attribute.t.data_type, attribute.i if attribute.name in _TYPE_ATTRIBUTES else 0}
    return not found.isdisjoint(_FLOAT8)


def _ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    """The array as the library's tensor, on the same memory."""
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    from onnx import helper  # ml_dtypes' types: numpy alone does not tell the library which they are

    element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, element_type)


def _spec(value: onnxruntime.NodeArg) -> TensorSpec:
    dtype = _NUMPY_NAMES.get(value.type, value.type.removeprefix("tensor(").removesuffix(")"))
    shape: tuple[Dim, ...] = tuple(dim if isinstance(dim, int | str) else None for dim in value.shape)
    return TensorSpec(value.name, dtype, shape)
