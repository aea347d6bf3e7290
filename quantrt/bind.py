# SPDX-License-Identifier: Apache-2.0
"""The edges of an engine: its inputs and outputs in the element types and layouts that a caller wants.

Layouts and whole numbers are put into the graph before anything else happens. Types of floats are bound when
the model is calibrated and quantized: only then are the scales of int8 codes known, and until then tensors
have the names and ranges of the float model. Samples stay as the model takes them, and are converted as they
are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from quantrt.assign.accuracy.accuracy import Run
from quantrt.calibrate.converted import as_bound, converted
from quantrt.calibrate.dataset import Dataset
from quantrt.calibrate.stats import Stats
from quantrt.config import BuildConfig
from quantrt.constrain.constraints import Constraints
from quantrt.dtypes import INT8
from quantrt.errors import UsageError
from quantrt.ir.clone import clone
from quantrt.ir.layout import Layout
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.binding import FLOATS, Binding, read_layouts, read_types
from quantrt.model.model import Model
from quantrt.model.passes.lay_out_edges import INNER, lay_out_edges
from quantrt.model.passes.types.bind_types import bind_types, edge_scale
from quantrt.prepare import Job, Quantized
from quantrt.quantize.make_cache import symmetric_scale

__all__ = [
    "Edges",
    "bind_floats",
    "bind_stored",
    "laid_out_data",
    "laid_out_stats",
    "lay_out",
    "read_edges",
    "unbound",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Edges:
    """What is asked of a model's inputs and outputs, by name; what the model has anyway is not here.

    Attributes:
        wholes: types of whole numbers and truths, which are cast.
        floats: types of floats.
        given: inputs as the model takes them, and samples come.
    """

    layouts: Mapping[str, Layout] = field(default_factory=dict)
    wholes: Mapping[str, Binding] = field(default_factory=dict)
    floats: Mapping[str, Binding] = field(default_factory=dict)
    given: tuple[TensorSpec, ...] = ()

    @property
    def without_scale(self) -> tuple[str, ...]:
        """Those whose codes need a scale that nobody gave."""
        return tuple(name for name, x in self.floats.items() if x.dtype == "int8" and x.scale is None)


def read_edges(model: Model, config: BuildConfig) -> Edges:
    """What the options ask of a model's inputs and outputs.

    Raises:
        UsageError: a name, type or layout is unknown, a tensor cannot have it, or codes can get no scale.
    """
    types = _read_types(model, config)
    wanted = config.bindings
    layouts = read_layouts(wanted.input_layouts, model.inputs, flag="--input-layouts")
    layouts |= read_layouts(wanted.output_layouts, model.outputs, flag="--output-layouts")
    own = {spec.name: spec.dtype for spec in (*model.inputs, *model.outputs)}
    floats = {name: binding for name, binding in types.items() if own[name] in FLOATS}
    wholes = {name: binding for name, binding in types.items() if own[name] not in FLOATS}
    edges = Edges(layouts, wholes, floats, model.inputs)
    for name, binding in floats.items():
        if binding.dtype == "bfloat16" and config.device.device == "cpu":
            raise UsageError(
                f"'{name}' cannot be bf16: the libraries of a CPU take none from numpy", hint=f"{name}:fp16"
            )
    if "int8" not in config.precisions:
        for name in edges.without_scale:
            if edge_scale(model.graph, name) is None:
                raise _no_range(name, "int8 is not allowed, so that nothing is calibrated")
    return edges


def _read_types(model: Model, config: BuildConfig) -> dict[str, Binding]:
    """Element types other than the graph's: those asked for, and on a GPU bfloat16 where the file has it."""
    wanted, own = config.bindings, {spec.name: spec.dtype for spec in (*model.inputs, *model.outputs)}
    halves = model.bfloats if config.device.device == "cuda" else ()
    inputs, outputs = (
        [replace(spec, dtype="bfloat16") if spec.name in halves else spec for spec in specs]
        for specs in (model.inputs, model.outputs)
    )
    types = {name: Binding("bfloat16") for name in halves}
    types |= read_types(wanted.input_types, inputs, is_input=True, flag="--input-types")
    types |= read_types(wanted.output_types, outputs, is_input=False, flag="--output-types")
    return {name: binding for name, binding in types.items() if binding.dtype != own[name]}


def lay_out(model: Model, edges: Edges) -> Model:
    """The model with its inputs and outputs in their layouts, and whole numbers in their types.

    Raises:
        UsageError: an input is an output too.
    """
    if not edges.layouts and not edges.wholes:
        return model
    graph = clone(model.graph)
    lay_out_edges(graph, edges.layouts)
    bind_types(graph, edges.wholes)
    return replace(
        model,
        graph=graph,
        inputs=tuple(_laid_out(spec, edges) for spec in model.inputs),
        outputs=tuple(_laid_out(spec, edges) for spec in model.outputs),
    )


def laid_out_data(data: Dataset | None, model: Model, edges: Edges, config: BuildConfig) -> Dataset | None:
    """Samples of the model as given, for the one that `lay_out` made."""
    if not edges.layouts and not edges.wholes:
        return data
    specs = {spec.name: spec for spec in model.inputs}

    def convert(name: str, array: Array) -> Array:
        if name in edges.layouts:
            return edges.layouts[name].to_memory_array(array)
        return as_bound(array, specs[name], f"a sample of input '{name}'") if name in edges.wholes else array

    return converted(data, model.inputs, convert, config.calibration.seed)


def laid_out_stats(stats: Stats | None, edges: Edges) -> Stats | None:
    """Ranges of the model as given: a tensor that is only moved has those of what it was."""
    if stats is None or not edges.layouts:
        return stats
    inner = {f"{name}{INNER}": stats.tensors[name] for name in edges.layouts if name in stats.tensors}
    return replace(stats, tensors={**inner, **stats.tensors})


def bind_floats(
    job: Job, quantized: Quantized, truth: Dataset | None, edges: Edges
) -> tuple[Job, Quantized, Dataset | None]:
    """Everything that follows calibration, with inputs and outputs of floats in their types.

    Raises:
        UsageError: codes can get no scale.
    """
    if not edges.floats:
        return job, quantized, truth
    bindings = {name: _scaled(name, binding, job, quantized) for name, binding in edges.floats.items()}
    inputs = tuple(_bound(spec, bindings.get(spec.name)) for spec in job.model.inputs)
    outputs = tuple(_bound(spec, bindings.get(spec.name)) for spec in job.model.outputs)
    specs = {spec.name: spec for spec in inputs}

    def convert(name: str, array: Array) -> Array:
        return as_bound(array, specs[name], f"a sample of input '{name}'")

    seed = job.config.calibration.seed
    model = replace(job.model, bindings=bindings, inputs=inputs, outputs=outputs)
    samples = converted(quantized.samples, inputs, convert, seed)
    return (
        replace(job, model=model),
        replace(quantized, samples=samples),
        converted(truth, inputs, convert, seed),
    )


def bind_stored(job: Job, quantized: Quantized, constraints: Constraints) -> Job:
    """The types that values have to be stored in, codes with their scales.

    Raises:
        UsageError: codes can get no scale.
    """
    if not constraints.stored:
        return job
    stored = {name: _scaled(name, binding, job, quantized) for name, binding in constraints.stored.items()}
    return replace(job, model=replace(job.model, stored=stored))


def unbound(run: Run, outputs: Sequence[TensorSpec], bindings: Mapping[str, Binding]) -> Run:
    """A run whose outputs are floats again where the model's are: what metrics are taken of."""
    bound = [spec for spec in outputs if spec.name in bindings]
    if not bound:
        return run

    def run_floats(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        found = dict(run(inputs))
        for spec in bound:
            scale = np.float32(1.0 if spec.scale is None else spec.scale)
            found[spec.name] = found[spec.name].astype(np.float32) * scale
        return found

    return run_floats


def _laid_out(spec: TensorSpec, edges: Edges) -> TensorSpec:
    layout, binding = edges.layouts.get(spec.name), edges.wholes.get(spec.name)
    return _bound(spec if layout is None else layout.in_memory(spec), binding)


def _bound(spec: TensorSpec, binding: Binding | None) -> TensorSpec:
    return spec if binding is None else replace(spec, dtype=binding.dtype, scale=binding.scale)


def _scaled(name: str, binding: Binding, job: Job, quantized: Quantized) -> Binding:
    """The binding with a scale where it is of codes."""
    if binding.dtype != "int8" or binding.scale is not None:
        return binding
    scale = edge_scale(job.model.graph, name)
    if scale is None and quantized.cache is not None:
        scale = quantized.cache.given.scales.get(name)
    if scale is None:
        scale = _quantized_scale(name, quantized)
    if scale is None and quantized.stats is not None and name in quantized.stats.tensors:
        scale = symmetric_scale(quantized.stats.tensors[name], job.config.calibration)
    if scale is None:
        source = "calibration" if quantized.cache is None else f"'{quantized.cache.cache.name}'"
        raise _no_range(name, f"{source} has none")
    return replace(binding, scale=float(np.float32(scale)))


def _quantized_scale(name: str, quantized: Quantized) -> float | None:
    """The scale that a target reads the tensor on, where its codes are symmetric int8."""
    for fitted in quantized.fits.values():
        qparams = fitted.model.activations.get(name)
        if qparams is not None and qparams.dtype == INT8 and qparams.scale.size == 1:
            if not np.any(qparams.zero_point):
                return float(qparams.scale.reshape(-1)[0])
    return None


def _no_range(name: str, why: str) -> UsageError:
    return UsageError(
        f"'{name}' cannot be int8: there is no range to take the scale of its codes from, {why}",
        expected="--int8 with calibration data or a cache that has the tensor, or a scale",
        hint=f"{name}:int8@0.0078125 behind --input-types or --output-types, or --calib-data P",
    )
