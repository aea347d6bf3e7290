# SPDX-License-Identifier: Apache-2.0
"""The first tensor with NaN or infinite values, without holding any tensor: its sum after times zero.

0 * x is 0 for every finite x and NaN for the others, and NaN survives a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.dataset import Dataset
from quantrt.config import CompareConfig
from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant
from quantrt.quantize.qdq.switches import FLAGS, SUFFIX, Switched
from quantrt.report.layer_errors.measure import LayerErrors
from quantrt.report.layer_errors.sessions import Part
from quantrt.report.subject import own_rows

__all__ = ["NotFinite", "find_not_finite", "first_in_engine"]

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
PROBE = f"{SUFFIX}probe"


@dataclass(frozen=True)
class NotFinite:
    """The first tensor of a model that has values which are no numbers.

    Attributes:
        where: "float", "fake-quantized" or "compiled".
        tensor, node, op_type: what and who made it.
        nan, infinite: how many values.
        elements: of how many, over all samples.
    """

    where: str
    tensor: str
    node: str
    op_type: str
    nan: int
    infinite: int
    elements: int


def find_not_finite(switched: Switched, dataset: Dataset, config: CompareConfig) -> list[NotFinite]:
    """At most one row for the float model, and one for the fake-quantized one."""
    model, probes = _with_probes(switched.graph)
    part = Part(model, list(probes))
    every = range(len(switched.layers))
    first: dict[str, int] = {}
    order = list(probes.values())
    sides = (_Side("float", switched.flags()), _Side("fake-quantized", switched.flags(*every)))
    for batch in dataset.batches(config.batch_size, config.max_samples):
        for side in sides:
            sums = part.run({**batch.inputs, FLAGS: side.flags})
            bad = [number for number, probe in enumerate(probes) if not np.isfinite(sums[probe]).all()]
            if bad:
                first[side.where] = min(bad[0], first.get(side.where, bad[0]))
    found = [side for side in sides if side.where in first]
    return [_count(switched, side, order[first[side.where]], dataset, config) for side in found]


def first_in_engine(found: Sequence[LayerErrors]) -> list[NotFinite]:
    """A row for the first compared tensor of the engine that is not finite; none where all are."""
    for row in found:
        if row.not_finite and row.extent.engine is not None and row.compiled is not None:
            layer = row.extent.layer
            name, count = row.extent.engine.name, row.compiled.count
            infinite = row.not_finite - row.nan
            return [NotFinite("compiled", name, layer.name, layer.op_type, row.nan, infinite, count)]
    return []


def _with_probes(graph: ir.Model) -> tuple[ir.Model, dict[str, str]]:
    """The graph with a sum per floating-point tensor; probe -> tensor, in topological order."""
    model = clone(graph)
    probes: dict[str, str] = {}
    zeros: dict[ir.DataType, ir.Value] = {}
    for node in list(model.graph):
        for value in node.outputs:
            name = value.name or ""
            if not name or SUFFIX.strip("/") in name or value.dtype not in FLOATS or _is_form(node):
                continue
            if value.dtype not in zeros:
                array = np.zeros((), value.dtype.numpy())
                zeros[value.dtype] = add_constant(model, f"quantrt.zero_{value.dtype.name}", array)
            product = _add(model, "Mul", [value, zeros[value.dtype]], f"{name}{PROBE}_mul")
            total = _add(model, "ReduceSum", [product], f"{name}{PROBE}", keepdims=0)
            probes[total.name or ""] = name
    return model, probes


def _is_form(node: ir.Node) -> bool:
    """Whether a node only makes another form of a value."""
    return node.op_type in ("DequantizeLinear", "QuantizeLinear") or (node.name or "").startswith("quantrt.")


def _add(model: ir.Model, op_type: str, inputs: list[ir.Value], name: str, **attributes: int) -> ir.Value:
    node = ir.node(op_type, inputs, attributes=attributes, name=name)
    node.outputs[0].name = name
    model.graph.append(node)
    return node.outputs[0]


@dataclass(frozen=True)
class _Side:
    """One of the models that the flags make of the graph."""

    where: str
    flags: np.ndarray


def _count(
    switched: Switched, side: _Side, tensor: str, dataset: Dataset, config: CompareConfig
) -> NotFinite:
    """How many values are none, in a pass that makes this one tensor."""
    part = Part(switched.graph, [tensor])
    node = next(node for node in switched.graph.graph if tensor in {value.name for value in node.outputs})
    nan = infinite = elements = 0
    for batch in dataset.batches(config.batch_size, config.max_samples):
        array = own_rows(part.run({**batch.inputs, FLAGS: side.flags}), batch, dataset)[tensor]
        nan += int(np.count_nonzero(np.isnan(array)))
        infinite += int(np.count_nonzero(np.isinf(array)))
        elements += array.size
    return NotFinite(side.where, tensor, node.name or "", node.op_type, nan, infinite, elements)
