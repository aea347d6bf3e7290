# SPDX-License-Identifier: Apache-2.0
"""Which tactics are legal for every region of a model on GPUs that need not be here; nothing is run or timed.

Placement and shapes decide legality, not ranges: every scale is taken as 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import onnx_ir as ir

from quantrt.dtypes import precision_of
from quantrt.gpu import GpuFacts
from quantrt.ir.clone import clone
from quantrt.ir.shapes import infer_shapes
from quantrt.model.for_gpu import for_gpu
from quantrt.model.model import Model
from quantrt.quantize.explicit.read import read
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.regions.facts.contents import Dim
from quantrt.regions.facts.sizes import Sizes
from quantrt.regions.partition import partition
from quantrt.regions.region import (
    Concat,
    Conv,
    ConvTranspose,
    GroupNorm,
    Host,
    LinearAttention,
    Mismatch,
    Nodes,
    Pool,
    Region,
    Resize,
    View,
)
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.forms.forms import CODES, Forms, choose_forms
from quantrt.tactics.cuda.forms.nominal import nominal
from quantrt.tactics.cuda.forms.workloads import STORING, Lowered, lower_region
from quantrt.tactics.cuda.tactic import (
    DEQUANTIZED,
    REFERENCE,
    Rejected,
    Tactic,
    TensorFacts,
    Workload,
    dense_strides,
)

__all__ = ["Finding", "Survey", "survey"]

Shape = tuple[int, ...]

TARGETS = {target.precision: target for target in (CUDA, CUDA_FP8)}
"""Rules of placement, by the precision asked for."""

FLOAT_TYPES = {"fp32": "float32", "fp16": "float16", **dict.fromkeys(TARGETS, "float16")}
"""In what floats are stored, by the precision asked for."""


@dataclass(frozen=True)
class Finding:
    """One region on one GPU.

    Attributes:
        region: what it is.
        precision: "int8" or "fp8" for a product of codes, otherwise that of its floats; "" where nothing is
            computed.
        legal: tactics that can run there, in the order of their families' preference.
        rejected: the others, and why.
        fallback: why no kernel is legal for it as it is asked for, so that it runs slower than planned; empty
            when one is.
    """

    region: Region
    precision: str
    legal: tuple[Tactic, ...]
    rejected: tuple[Rejected, ...]
    fallback: str


@dataclass(frozen=True)
class Survey:
    """A model on several GPUs.

    Attributes:
        findings: for every GPU, in the order asked for: one per region.
        mismatches: fusions that did not happen, the same on every GPU.
    """

    findings: tuple[tuple[GpuFacts, tuple[Finding, ...]], ...]
    mismatches: tuple[Mismatch, ...]


def survey(
    model: Model, shapes: Mapping[str, Shape], gpus: Sequence[GpuFacts], *, precision: str = "int8"
) -> Survey:
    """List the tactics of every region.

    Args:
        shapes: of every input of the model.
        precision: "fp32", "fp16", or "int8" or "fp8" with float16 where the rules of the target leave floats.
    """
    float_type = FLOAT_TYPES[precision]
    model, quantized = _quantized(for_gpu(model), precision)
    regions = partition(model.graph)
    forms = choose_forms(model.graph.graph, regions, quantized)
    known = _shapes(model.graph, shapes)
    workloads: list[tuple[Region, Workload | str]] = []
    for region in regions.regions:
        if not isinstance(region.formula, STORING | Concat | LinearAttention):
            workloads.append((region, ""))
            continue
        lowered = lower_region(region, model.graph.graph, forms, quantized, float_type)
        workloads.append((region, _workload(lowered, known, forms, float_type)))
    names = {name: short for short, name in FLOAT_TYPES.items() if short not in TARGETS}
    found = tuple(
        (gpu, tuple(_finding(region, work, gpu, names[float_type]) for region, work in workloads))
        for gpu in gpus
    )
    return Survey(found, regions.mismatches)


def _finding(region: Region, work: Workload | str, gpu: GpuFacts, float_precision: str) -> Finding:
    match region.formula:
        case View() | Host():
            return Finding(region, "", (), (), "")
        case Nodes():
            return Finding(region, float_precision, (), (), "torch runs it operator by operator")
    if isinstance(work, str):
        return Finding(region, float_precision, (), (), work)
    codes = "" if work.weight is None else precision_of(str(work.weight.dtype))
    precision = codes or float_precision
    listed = list_tactics(work, gpu)
    legal = tuple(row for row in listed if isinstance(row, Tactic))
    rejected = tuple(row for row in listed if isinstance(row, Rejected))
    fallback = "" if any(map(_is_kernel, legal)) else _why(rejected)
    return Finding(region, precision, legal, rejected, fallback)


def _is_kernel(tactic: Tactic) -> bool:
    """Whether a tactic computes the region as asked: no reference, no codes turned into floats first."""
    is_unfused = any(draft.options.get("backends") == ["math"] for draft in tactic.drafts)
    return not (is_unfused or tactic.name == REFERENCE or DEQUANTIZED in tactic.name.split())


def _why(rejected: Sequence[Rejected]) -> str:
    """The first reason of every source; its other tactics mostly repeat it."""
    reasons: dict[str, str] = {}
    for row in rejected:
        reasons.setdefault(row.source, row.reason)
    return (
        "; ".join(f"{source}: {reason}" for source, reason in reasons.items()) or "there is no kernel for it"
    )


def _workload(lowered: Lowered, shapes: Mapping[str, Shape], forms: Forms, float_type: str) -> Workload | str:
    """The workload, or why there is none yet."""
    missing = next((value for value, _ in lowered.inputs if value not in shapes), None)
    if missing is not None:
        return f"the shape of '{missing}' is known only when the model runs"
    is_image = isinstance(lowered.formula, Conv | ConvTranspose | GroupNorm | Pool | Resize | Concat)
    return lowered.workload(
        [
            TensorFacts(
                forms.code_type(value) if form == CODES else float_type,
                shapes[value],
                dense_strides(shapes[value], channels_last=is_image),
            )
            for value, form in lowered.inputs
        ]
    )


def _quantized(model: Model, precision: str) -> tuple[Model, QuantizedModel | None]:
    """The float model, and what is in codes: where it was quantized before, on its own scales, as it says."""
    if precision not in TARGETS:
        return model, None
    if is_quantized(model.graph.graph):
        own = read(model)
        return replace(model, graph=own.graph), own
    return model, nominal(model, TARGETS[precision])


def _shapes(graph: ir.Model, inputs: Mapping[str, Shape]) -> dict[str, Shape]:
    """Shapes of all values of the main graph that follow from those of its inputs."""
    fixed = clone(graph)
    sizes: dict[str | None, int] = {}
    for value in fixed.graph.inputs:
        given = inputs.get(value.name or "")
        if given is not None and value.shape is not None and len(given) == len(value.shape):
            pairs = zip(value.shape, given, strict=True)
            sizes |= {dim.value: size for dim, size in pairs if isinstance(dim, ir.SymbolicDim)}
        value.shape = value.shape if given is None else ir.Shape(given)
    sizes.pop(None, None)
    values = [value for node in fixed.graph for value in node.outputs]
    for value in values:
        if value.shape is not None:
            dims = (dim.value if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape)
            value.shape = ir.Shape([sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in dims])
    infer_shapes(fixed)
    found = Sizes(fixed)
    values += [*fixed.graph.inputs, *fixed.graph.initializers.values()]
    shapes = {value.name or "": found.shape(value) for value in values}
    return {name: shape for name, shape in shapes.items() if shape is not None and _is_concrete(shape)}


def _is_concrete(shape: tuple[Dim, ...]) -> TypeGuard[Shape]:
    return all(isinstance(dim, int) for dim in shape)
