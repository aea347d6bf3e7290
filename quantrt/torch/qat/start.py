# SPDX-License-Identifier: Apache-2.0
"""Where training starts: at what quantization after training makes of the same graph.

Ranges, bias correction, equalization, folded SmoothQuant and rounding are those of quantize/fit/, on the
graph that the module was exported to. What they change are constants of that graph; here each goes back into
the parameter that it is of, and grids onto the edges of the module. A constant without a parameter of its
own, such as a bias that two layers share, stays as it was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir
import torch
from torch import fx, nn

from quantrt.errors import InternalError
from quantrt.ir.edit import add_constant, constant_of, is_operator
from quantrt.model.model import Model
from quantrt.quantize.fit.equalized import Equalized
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.quantized_model import Placement, QuantizedModel, Use
from quantrt.quantize.scales.qparams import dequantize, quantize_array
from quantrt.torch.qat.edges import ConstantEdge, Edges, constant_edge
from quantrt.torch.qat.fold_norms import CHANNEL_AXIS
from quantrt.torch.qat.fx_edit import add_parameter, parameter_of
from quantrt.torch.qat.trace import Traced

__all__ = ["Start"]

BIAS = 2
"""The input of a linear operator that is its bias, in torch as in ONNX."""


@dataclass(frozen=True)
class Start:
    """A traced module whose parameters are still those of the float model.

    Attributes:
        floats: its canonical ONNX model.
        edges: the edges that were found; a bias that is added joins them.
    """

    traced: Traced
    floats: Model
    placement: Placement
    edges: Edges

    @cached_property
    def nodes(self) -> Mapping[str, ir.Node]:
        """Those of the float model, by name."""
        return {node.name or "": node for node in self.floats.graph.graph}

    def can_hold(self, twin: Equalized) -> bool:
        """Whether every constant that a twin has other than the float model is a parameter of one reader."""
        changed = _changed(self.floats.graph, twin.model.graph)
        return not twin.multiplied and all(self._edge(use) is not None for use in changed)

    def take(self, fitted: Fitted) -> tuple[QuantizedModel, tuple[str, ...]]:
        """Give the module the constants of a quantized model; that model on the module's edges, and notes."""
        changed = {**_changed(self.floats.graph, fitted.model.graph), **_rounded(fitted.model)}
        lost = 0
        for use, array in changed.items():
            edge = self._edge(use)
            if edge is not None:
                self._set(edge, array)
            elif not self._add_bias(use, array):
                lost += 1
        notes = [*fitted.model.notes, f"training starts from ranges by {fitted.method}"]
        if lost:
            notes.append(f"{lost} constants without a parameter of their own start as they were trained")
        return self._as_placed(fitted.model), tuple(notes)

    def _edge(self, use: Use) -> ConstantEdge | None:
        """The parameter behind a constant, where nothing else reads it."""
        reader = self.edges.readers.get(use[0])
        node = self.nodes[use[0]]
        array = constant_of(node.inputs[use[1]]) if use[1] < len(node.inputs) else None
        edge = None if array is None or reader is None else constant_edge(self.traced.network, reader, array)
        return edge if edge is not None and self._reads(edge.source) == 1 else None

    def _reads(self, source: fx.Node) -> int:
        """How often the parameter of a node is read, under any of its names."""
        network = self.traced.network
        parameter = parameter_of(network, source)
        nodes = network.graph.find_nodes(op="get_attr")
        return sum(len(node.users) for node in nodes if _is_same(parameter_of(network, node), parameter))

    def _set(self, edge: ConstantEdge, array: np.ndarray) -> None:
        parameter = parameter_of(self.traced.network, edge.source)
        if parameter is None:
            raise InternalError(f"'{edge.source.target}' is no parameter")
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(array.T if edge.is_transposed else array)))

    def _add_bias(self, use: Use, array: np.ndarray) -> bool:
        """Give a linear operator that has no bias a parameter for it; whether that was done."""
        reader = self.edges.readers.get(use[0])
        if reader is None or reader.target not in CHANNEL_AXIS or use[1] != BIAS:
            return False
        node = next((node for node in self.traced.onnx.graph if node.name == use[0]), None)
        weight = reader.args[1]
        if node is None or not isinstance(weight, fx.Node) or any(reader.args[BIAS : BIAS + 1]):
            return False
        path = str(weight.target).rpartition(".")[0]
        value = nn.Parameter(torch.from_numpy(array.copy()).to(reader.meta["val"].device))
        source = add_parameter(self.traced.network, f"{path}.bias" if path else "bias", value, before=reader)
        constant = add_constant(self.traced.onnx, str(source.target), array)
        if constant.name != source.target:
            raise InternalError(f"'{source.target}' is a parameter of the module, and something else in ONNX")
        node.resize_inputs(max(len(node.inputs), BIAS + 1))
        node.replace_input_with(BIAS, constant)
        reader.args = (*reader.args[:BIAS], source, *reader.args[BIAS + 1 :])
        self.edges.constants[use] = ConstantEdge(source, reader, is_transposed=False)
        return True

    def _as_placed(self, quantized: QuantizedModel) -> QuantizedModel:
        """The same with the names that values have in the module: a twin's differ.

        Raises:
            InternalError: other edges are quantized than those of the module.
        """
        names = _names_in(self.floats.graph, quantized.graph)
        uses = {use: names.get(value, value) for use, value in quantized.placement.uses.items()}
        if uses != self.placement.uses or quantized.placement.weights != self.placement.weights:
            raise InternalError("what training starts from has other quantized edges than the module")
        activations = {names.get(name, name): grid for name, grid in quantized.activations.items()}
        return replace(quantized, placement=self.placement, activations=activations)


def _changed(before: ir.Model, after: ir.Model) -> dict[Use, np.ndarray]:
    """Constants that differ, as they are after; but for tables, which training has as they are."""
    nodes = {node.name: node for node in after.graph}
    changed: dict[Use, np.ndarray] = {}
    for node in before.graph:
        if is_operator(node, "Gather"):
            continue
        for index, value in enumerate(nodes[node.name].inputs):
            new = constant_of(value)
            old = constant_of(node.inputs[index]) if index < len(node.inputs) else None
            if new is not None and (old is None or not np.array_equal(old, new)):
                changed[node.name or "", index] = new
    return changed


def _rounded(quantized: QuantizedModel) -> dict[Use, np.ndarray]:
    """Weights whose codes are not the nearest ones, on these codes where that is so."""
    nodes = {node.name or "": node for node in quantized.graph.graph}
    found: dict[Use, np.ndarray] = {}
    for use, tensor in quantized.weights.items():
        array = constant_of(nodes[use[0]].inputs[use[1]])
        if array is None or is_operator(nodes[use[0]], "Gather"):
            continue
        is_nearest = quantize_array(array, tensor.qparams) == tensor.codes
        if not is_nearest.all():
            found[use] = np.where(is_nearest, array, dequantize(tensor.codes, tensor.qparams))
    return found


def _names_in(graph: ir.Model, twin: ir.Model) -> Mapping[str, str]:
    """Names of a graph's values, by those that they have in a twin of it."""
    nodes = {node.name: node for node in graph.graph}
    return {
        theirs.name or "": mine.name or ""
        for node in twin.graph
        if node.name in nodes
        for theirs, mine in zip(node.outputs, nodes[node.name].outputs, strict=True)
    }


def _is_same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and one.data_ptr() == other.data_ptr()
