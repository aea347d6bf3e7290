# SPDX-License-Identifier: Apache-2.0
"""Runs a model through OpenVINO's CPU plugin.

A model with dynamic dimensions, compiled as such, is slower than the same model reshaped to the shapes that
arrive. So the first OWN_SHAPES distinct input shapes are compiled for themselves, each when it first arrives,
and all further shapes share one dynamic model. What serves a shape never changes afterwards, so equal inputs
give equal outputs for the life of the executor. `compiled_shapes` tells which shapes have their own.

Weights stay where they are, in the engine file's mapping when they come from one; each compiled model keeps
the copy that its kernels repacked. Float layers compute in FP32 unless asked otherwise: on CPUs with bf16
instructions the plugin's own default is bf16. The plugin computes 64-bit integers in 32 bits; inputs that do
not fit are refused, for they would give wrong outputs. Kernels that it gets wrong are left out; see
`quantrt.runtime.openvino.joined`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import openvino

from quantrt.errors import DataError, DeviceError, InternalError, ModelError
from quantrt.ir.no_memory import check_memory
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.runtime.error_text import library_reason
from quantrt.runtime.openvino.joined import HAS_CODES, WITHOUT_JOINED, joins_products
from quantrt.runtime.openvino.lanes import OpenVinoLanes
from quantrt.runtime.openvino.ports import (
    Shapes,
    choose_outputs,
    names_of,
    shapes_text,
    shared_tensor,
    spec_of,
    too_wide,
)
from quantrt.runtime.request_pool import RequestPool
from quantrt.threads import bounded_threads, usable_cores

__all__ = ["OWN_SHAPES", "CompiledVariant", "OpenVinoContext", "OpenVinoExecutor"]

OWN_SHAPES = 3
"""Input shapes that get a compiled model, and so a repacked copy of the weights, of their own."""

MOST_AGAIN_BYTES = 256 << 20
"""Of weights, which are copied into what is exported, and out of it."""

_LOGGER = logging.getLogger(__name__)

_LIBRARY_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
)  # what pybind11 makes of ov::Exception and bad arguments

_WIDE_INTEGERS = ("int64", "uint64", "uint32")


class OpenVinoExecutor:
    """An OpenVINO model and its compiled variants over weights that it does not own.

    Args:
        properties: of the library, beside those that `options` mean.
        own_shapes: how many input shapes get a compiled model of their own.
    """

    def __init__(
        self,
        model: LibraryModel,
        options: ExecOptions,
        *,
        output_names: Sequence[str] | None = None,
        properties: Mapping[str, Any] | None = None,
        own_shapes: int = OWN_SHAPES,
    ) -> None:
        self._own_shapes = own_shapes
        self._core = openvino.Core()
        self._config = {**_compile_config(self._core, options), **(properties or {})}
        self._weights = model.weights.get("bin", np.zeros(0, np.uint8))
        self._model = self._read(model)
        if HAS_CODES in model.graph and joins_products(self._model):
            self._config |= WITHOUT_JOINED
        self._threads = options.threads
        alone = options.one_thread_shapes
        self._one_thread_shapes = None if alone is None else tuple(tuple(shape) for shape in alone)
        self.parallel_runs = (options.threads or usable_cores()) if options.hint == "throughput" else 1
        self.inputs = tuple(spec_of(port, None) for port in self._model.inputs)
        self._input_index = {name: i for i, port in enumerate(self._model.inputs) for name in names_of(port)}
        self._wide_inputs = [i for i, spec in enumerate(self.inputs) if spec.dtype in _WIDE_INTEGERS]
        self._outputs = choose_outputs(self._model, output_names)
        self.outputs = tuple(spec_of(self._model.outputs[i], name) for name, i in self._outputs)
        self._lock = threading.Lock()
        self._variants: dict[Shapes, CompiledVariant] = {}
        self._told: dict[Shapes, CompiledVariant] = {}  # behind what was imported: it tells its layers
        self._dynamic: CompiledVariant | None = None
        self._is_closed = False
        if not self._model.is_dynamic():
            self._variant(tuple(tuple(port.shape) for port in self._model.inputs))

    @property
    def compiled_shapes(self) -> tuple[Shapes, ...]:
        """Input shapes, in the order of `inputs`, that have a compiled model of their own."""
        return tuple(self._variants)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name; see Executor.run. A new shape may compile first; see the module."""
        return self.run_in(None, (), inputs)

    def run_in(
        self, own: CompiledVariant | None, own_shapes: Shapes, inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """As `run`; inputs of these shapes in a variant that the caller has, where there is one."""
        arrays = self._in_order(inputs)
        shapes = tuple([array.shape for array in arrays])
        variant = own if own is not None and shapes == own_shapes else self._variant(shapes)
        request = variant.requests.take()
        try:
            return self._infer(request, arrays)
        finally:
            variant.requests.give(request)

    def run_zeros(self, shapes: Shapes) -> None:
        """One run for what compiling does, on zeros of these shapes, in the order of `inputs`."""
        ports = zip(self._model.inputs, shapes, strict=True)
        arrays = [np.zeros(shape, port.get_element_type().to_dtype()) for port, shape in ports]
        self._infer(self._variant(shapes).compiled.create_infer_request(), arrays)

    def settle(self) -> None:
        """Compile what further input shapes share; from now on none gets a model of its own."""
        with self._lock:
            self._own_shapes = len(self._variants)
            if self._dynamic is None and self._variants and self._model.is_dynamic():
                self._dynamic = self._compile(None, next(iter(self._variants)))

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """One run for timing; see Executor.prepare."""
        return partial(self.run, inputs)

    def lanes(self, inputs: Mapping[str, np.ndarray]) -> OpenVinoLanes | None:
        """What runs inputs of these shapes on one thread each; see LanesBeside.lanes."""
        shapes = tuple([array.shape for array in self._in_order(inputs)])
        count = self._threads or usable_cores()
        variant = self.again(shapes, {"NUM_STREAMS": count, "INFERENCE_NUM_THREADS": count})
        return None if variant is None else OpenVinoLanes(self, shapes, variant, count)

    def again(self, shapes: Shapes, properties: Mapping[str, Any]) -> CompiledVariant | None:
        """What is compiled for these shapes, with other options beside its own; no graph is rewritten for it.

        None where it is no model of their own, or is not to be had a second time, or is large.
        """
        own = self._compiled(shapes)
        if own is self._dynamic or self._weights.nbytes > MOST_AGAIN_BYTES:
            return None
        try:
            exported = np.frombuffer(own.compiled.export_model().getbuffer(), np.uint8)
            config = {**self._config_for(shapes), **properties}
            # As a tensor it is read where it lies; out of a stream it is copied first.
            compiled = self._core.import_model(shared_tensor(exported), "CPU", config)
        except _LIBRARY_ERRORS as error:
            _LOGGER.info("OpenVINO does not import what it compiled: %s", library_reason(error))
            return None
        return CompiledVariant(compiled, self._weights, exported)

    def run_alone(self, shapes: Shapes, variant: CompiledVariant | None) -> None:
        """From now on one thread makes a run of these shapes, which none made before but for timing.

        Args:
            shapes: that have a compiled model of their own.
            variant: of `again`, for one thread; None: it is compiled anew.
        """
        with self._lock:
            self._one_thread_shapes = shapes
            if variant is not None:
                self._told[shapes] = self._variants[shapes]
            self._variants[shapes] = self._compile(shapes, shapes) if variant is None else variant

    def source_model(self) -> openvino.Model:
        """The model as the engine file holds it."""
        return self._model

    def runtime_model(self, shapes: Shapes) -> openvino.Model:
        """What the plugin runs for these shapes, layer by layer."""
        return self._compiled(shapes).compiled.get_runtime_model()

    def create_context(self) -> OpenVinoContext:
        """A lane with its own infer request for every compiled model that it meets."""
        return OpenVinoContext(self)

    def close(self) -> None:
        """Free the compiled models, then let go of the weights they read."""
        with self._lock:
            self._is_closed = True
            self._variants.clear()
            self._told.clear()
            self._dynamic = None

    def _read(self, model: LibraryModel) -> openvino.Model:
        return _read_model(self._core, model.graph, self._weights)

    def _in_order(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The arrays by the model's input index; an input that no layer reads is not in the model."""
        found = {
            self._input_index[name]: array for name, array in inputs.items() if name in self._input_index
        }
        if len(found) != len(self.inputs):
            raise InternalError("an input of the OpenVINO model was not given", got=", ".join(inputs))
        for index in self._wide_inputs:
            if (found[index].astype(np.int32) != found[index]).any():
                raise too_wide(self.inputs[index], found[index])
        return [found[index] for index in range(len(found))]

    def _compiled(self, shapes: Shapes) -> CompiledVariant:
        """What was compiled for these shapes, whatever runs them."""
        return self._told.get(shapes) or self._variant(shapes)

    def _variant(self, shapes: Shapes) -> CompiledVariant:
        """The compiled model for these input shapes."""
        variant = self._variants.get(shapes)
        if variant is not None:
            return variant
        with self._lock:
            if self._is_closed:
                raise InternalError("the OpenVINO model was used after it was closed")
            if shapes in self._variants:  # another thread compiled it meanwhile
                return self._variants[shapes]
            self._check_shapes(shapes)
            if len(self._variants) < self._own_shapes:
                self._variants[shapes] = self._compile(shapes, shapes)
                return self._variants[shapes]
            if self._dynamic is None:
                self._dynamic = self._compile(None, shapes)
            return self._dynamic

    def _check_shapes(self, shapes: Shapes) -> None:
        """Reshaping would change fixed dimensions too, so they are compared first."""
        for spec, port, shape in zip(self.inputs, self._model.inputs, shapes, strict=True):
            if not port.partial_shape.compatible(openvino.PartialShape(list(shape))):
                raise DataError(
                    f"OpenVINO cannot run input '{spec.name}'", got=str(shape), expected=str(spec)
                )

    def _compile(self, shapes: Shapes | None, arrived: Shapes) -> CompiledVariant:
        """A compiled model: for these input shapes, or for any when None. The caller holds the lock.

        Args:
            arrived: the shapes that it is needed for now.
        """
        model = self._model
        if shapes is not None and model.is_dynamic():
            model = model.clone()  # constants stay shared
            try:
                model.reshape({index: list(shape) for index, shape in enumerate(shapes)})
            except _LIBRARY_ERRORS as error:
                raise DataError(
                    f"OpenVINO cannot run these input shapes: {library_reason(error)}",
                    got=shapes_text(shapes),
                ) from error
        start = time.perf_counter()
        try:
            compiled = self._core.compile_model(model, "CPU", self._config_for(shapes))
        except _LIBRARY_ERRORS as error:
            check_memory(error)
            raise ModelError(f"OpenVINO cannot compile the model: {library_reason(error)}") from error
        text = "any input shapes" if shapes is None else f"input shapes {shapes_text(shapes)}"
        _LOGGER.debug("OpenVINO compiled for %s in %.2f s", text, time.perf_counter() - start)
        return CompiledVariant(compiled, self._weights)

    def _config_for(self, shapes: Shapes | None) -> dict[str, Any]:
        """The library's properties of what is compiled for these input shapes, or for any when None."""
        is_alone = shapes is not None and shapes == self._one_thread_shapes
        return {**self._config, "INFERENCE_NUM_THREADS": 1} if is_alone else self._config

    def _infer(self, request: openvino.InferRequest, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Run one request: inputs are shared with the library, outputs are copied out of it."""
        try:
            tensors = {index: shared_tensor(array) for index, array in enumerate(arrays)}
            results = request.infer(tensors, share_inputs=True, share_outputs=False).to_tuple()
        except _LIBRARY_ERRORS as error:
            check_memory(error)
            raise DataError(f"OpenVINO cannot run these inputs: {library_reason(error)}") from error
        return {name: results[index] for name, index in self._outputs}


class OpenVinoContext:
    """One thread's lane: its own infer request for every compiled model that it meets."""

    def __init__(self, executor: OpenVinoExecutor) -> None:
        self._executor = executor
        self._requests: dict[CompiledVariant, openvino.InferRequest] = {}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name; see Executor.run."""
        executor = self._executor
        arrays = executor._in_order(inputs)
        variant = executor._variant(tuple([array.shape for array in arrays]))
        request = self._requests.get(variant)
        if request is None:
            request = self._requests[variant] = variant.compiled.create_infer_request()
        return executor._infer(request, arrays)

    def close(self) -> None:
        """Free the requests and the activations they hold."""
        self._requests.clear()


class CompiledVariant:
    """One compiled model with its pool of infer requests; keeps what it may read alive."""

    def __init__(self, compiled: openvino.CompiledModel, *read: np.ndarray) -> None:
        self.compiled = compiled
        limit = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        # One more than run at once, so that a thread can fill its inputs while another computes.
        self.requests = RequestPool(compiled.create_infer_request, limit + 1)
        self.read = read  # goes last


def _compile_config(core: openvino.Core, options: ExecOptions) -> dict[str, Any]:
    precisions = {"fp32": "f32", "bf16": "bf16"}
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if options.float_precision == "bf16" and "BF16" not in capabilities:
        raise DeviceError(
            "this CPU cannot compute in bf16",
            got=", ".join(capabilities),
            hint="`quantrt build` on this CPU, or with --no-bf16-beside-int8 and without --bf16",
        )
    config: dict[str, Any] = {
        "PERFORMANCE_HINT": options.hint.upper(),
        "INFERENCE_PRECISION_HINT": precisions[options.float_precision],
        # Otherwise layers with int8 weights and float inputs may quantize those inputs, uncalibrated.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }
    threads = options.threads or bounded_threads()
    if threads:
        config["INFERENCE_NUM_THREADS"] = threads
    return config


def _read_model(core: openvino.Core, graph: bytes, weights: np.ndarray) -> openvino.Model:
    try:
        return core.read_model(graph.decode("utf-8"), shared_tensor(weights))
    except (*_LIBRARY_ERRORS, UnicodeDecodeError) as error:
        raise ModelError(f"OpenVINO cannot load the model: {library_reason(error)}") from error
