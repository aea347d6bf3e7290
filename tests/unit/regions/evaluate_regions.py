# SPDX-License-Identifier: Apache-2.0
"""Compute a graph region by region: formulas by their reference, other regions by the ONNX operators."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from quantrt.operators.element_types import from_numpy, to_numpy
from quantrt.operators.extract import extract_nodes
from quantrt.operators.interpret import TorchGraph, open_device
from quantrt.regions.formula_expression import constant_names
from quantrt.regions.region import (
    Attention,
    Conv,
    ConvTranspose,
    Gemm,
    GroupNorm,
    Pool,
    Region,
    Regions,
    Resize,
    Rows,
)
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.forms.slots import slots_of

PRODUCTS = Conv | ConvTranspose | Gemm
FORMULAS = PRODUCTS | Attention | GroupNorm | Pool | Resize | Rows


def run_regions(graph: ir.Model, regions: Regions, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of the graph; a value that a region needs before it was made is a KeyError."""
    device = open_device("cpu")
    scope = {
        name: from_numpy(array, device) if isinstance(array, np.ndarray | np.generic) else array
        for name, array in feeds.items()
    }
    for region in regions.regions:
        if isinstance(region.formula, FORMULAS):
            results = _run_formula(graph, region, scope)
        else:
            part = extract_nodes(graph, region.nodes, region.inputs, region.outputs)
            found = TorchGraph(part).run({name: scope[name] for name in region.inputs})
            results = [found[name] for name in region.outputs]
        scope.update(zip(region.outputs, results, strict=True))
    constants = {value.name: value.const_value for value in graph.graph.initializers.values()}
    return {
        value.name: to_numpy(scope[value.name]) if value.name in scope else constants[value.name].numpy()
        for value in graph.graph.outputs
    }


def _run_formula(graph: ir.Model, region: Region, scope):
    values = {value.name: value for node in graph.graph for value in node.outputs}
    types = [values[name].dtype.numpy().name for name in region.outputs]
    slots = slots_of(region, {node.name or "": node for node in graph.graph})
    assert dict.fromkeys(slot.value for slot in slots) == dict.fromkeys(region.inputs)
    weight = _constant(graph, region.formula.weight) if isinstance(region.formula, PRODUCTS) else None
    constants = {name: _constant(graph, name) for name in constant_names(region.formula)}
    results = compute(region.formula, [scope[slot.value] for slot in slots], types, weight, constants)
    inside = {*region.outputs} - {value.name for value in graph.graph.outputs}
    for name, result in zip(region.outputs, results, strict=True):
        if name in inside:  # what a file declares of its outputs may be wrong
            check_declared(values[name], tuple(result.shape))
    return results


def check_declared(value: ir.Value, shape: tuple[int, ...]) -> None:
    """A result has the rank and the fixed sizes that inference found for it."""
    if value.shape is not None:
        assert len(value.shape) == len(shape), value.name
        for want, have in zip(value.shape.dims, shape, strict=True):
            assert not isinstance(want, int) or want == have, value.name


def _constant(graph: ir.Model, name: str):
    return from_numpy(graph.graph.initializers[name].const_value.numpy(), open_device("cpu"))
