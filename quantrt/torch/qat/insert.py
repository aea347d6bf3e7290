# SPDX-License-Identifier: Apache-2.0
"""Modules that round, put onto the quantized edges of a traced module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir
from torch import fx

from quantrt.errors import InternalError
from quantrt.ir.edit import constant_of, is_operator
from quantrt.quantize.quantized_model import QuantizedModel, Use
from quantrt.quantize.scales.qparams import QParams, quantize_weight
from quantrt.torch.qat.edges import ConstantEdge, Edges
from quantrt.torch.qat.fake_quant import FakeQuantize, FakeQuantizeBias
from quantrt.torch.qat.fx_edit import add_module, parameter_of
from quantrt.torch.qat.prepared import Recipe

__all__ = ["insert"]

FOLDER = "fake_quantize"
"""The submodule that all of them are in."""


def insert(
    network: fx.GraphModule, onnx: ir.Model, first: QuantizedModel, edges: Edges, *, is_learned: bool
) -> Recipe:
    """Round what `first` quantizes, on its grids.

    Args:
        network: is changed.
        onnx: the network in ONNX, not canonical.
        is_learned: whether the scales are trained.
    """
    return _Inserter(network, first, edges, is_learned=is_learned).recipe(onnx)


class _Inserter:
    """Puts modules that round onto the edges of a network."""

    def __init__(
        self, network: fx.GraphModule, first: QuantizedModel, edges: Edges, *, is_learned: bool
    ) -> None:
        self.network = network
        self.first = first
        self.edges = edges
        self.is_learned = is_learned
        self.modules: dict[str, FakeQuantize] = {}
        self.calls: dict[tuple[str, fx.Node], fx.Node] = {}
        self.called: dict[str, str] = {}

    def recipe(self, onnx: ir.Model) -> Recipe:
        """Insert everything."""
        placement = self.first.placement
        activations = self._activations()
        weights = {
            use: (self._weight(use), self.edges.constants[use].is_transposed) for use in placement.weights
        }
        biases = {use: self._bias(use, activations, weights) for use in self.first.biases}
        self.network.graph.lint()
        self.network.recompile()
        held = dict(self.network.state_dict())
        names = frozenset(name for name in onnx.graph.initializers if name in held)
        return Recipe(
            onnx=onnx,
            target=self.first.target,
            placement=placement,
            parameters=names,
            activations=activations,
            calls=self.called,
            weights=weights,
            biases=biases,
        )

    def _activations(self) -> dict[str, str]:
        placement, names = self.first.placement, {}
        groups = {name: sorted(group) for group in placement.groups for name in group}
        for value in sorted(placement.values):
            names[value] = f"{FOLDER}.activation_{_identifier(groups.get(value, [value])[0])}"
        for use, edges in self.edges.values.items():
            value = placement.uses[use]
            for edge in edges:
                call = self._rounded(names, value, edge.source)
                edge.reader.replace_input_with(edge.source, call)
        output = self.network.graph.output_node()
        for value, sources in self.edges.outputs.items():
            for source in sources:
                call = self._rounded(names, value, source)
                output.replace_input_with(source, call)
        return names

    def _rounded(self, names: Mapping[str, str], value: str, source: fx.Node) -> fx.Node:
        """The node that rounds `source`, one of those that have the values of an ONNX value."""
        name, qparams = names[value], self.first.activations[value]
        if (name, source) not in self.calls:
            shape = source.meta["val"].shape
            module = self._module(name, qparams, elements=_known_size(shape[1:]), rank=len(shape))
            self.calls[(name, source)] = add_module(self.network, name, module, source)
        call = self.calls[(name, source)]
        self.called.setdefault(value, call.name)
        return call

    def _module(self, name: str, qparams: QParams, *, elements: int, rank: int) -> FakeQuantize:
        if name not in self.modules:
            self.modules[name] = FakeQuantize(
                qparams, elements=elements, rank=rank, is_learned=self.is_learned
            )
        return self.modules[name]

    def _weight(self, use: Use) -> str:
        """Round a weight; the name of the module that does."""
        edge = self.edges.constants[use]
        qparams = self._weight_grid(use, edge)
        parameter = parameter_of(self.network, edge.source)
        if parameter is None:
            raise InternalError(f"the weight of '{use[0]}' is no parameter")
        scales = max(qparams.scale.size, 1)
        name = f"{FOLDER}.weight_{_identifier(use[0])}"
        module = self._module(name, qparams, elements=parameter.numel() // scales, rank=parameter.ndim)
        edge.reader.replace_input_with(edge.source, add_module(self.network, name, module, edge.source))
        return name

    def _weight_grid(self, use: Use, edge: ConstantEdge) -> QParams:
        """The grid of a weight as the module has it, its axes turned where ONNX has them turned."""
        qparams = self.first.weights[use].qparams
        node = next(node for node in self.first.model.graph.graph if node.name == use[0])
        if is_operator(node, "Gather"):  # its quantized form has balanced columns, which training has not
            array, dtype = constant_of(node.inputs[use[1]]), qparams.dtype
            if array is None:
                raise InternalError(f"the table of '{use[0]}' is no constant")
            qparams = quantize_weight(array, axis=qparams.axis, dtype=dtype, qmax=qparams.qmax).qparams
        axis = qparams.axis
        if edge.is_transposed and axis is not None:
            axis = 1 - axis
        return QParams(qparams.scale, qparams.zero_point, qparams.dtype, axis, qparams.qmin, qparams.qmax)

    def _bias(
        self, use: Use, activations: Mapping[str, str], weights: Mapping[Use, tuple[str, bool]]
    ) -> str | None:
        edge = self.edges.constants.get(use)
        if edge is None:
            return None
        read, weight = self.first.placement.biases[use]
        beside = activations[self.first.placement.uses[read]], weights[weight][0]
        name = f"{FOLDER}.bias_{_identifier(use[0])}"
        module = FakeQuantizeBias(*(self.modules[name] for name in beside))
        edge.reader.replace_input_with(edge.source, add_module(self.network, name, module, edge.source))
        return name


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _known_size(shape: Iterable[Any]) -> int:
    """Elements of a shape; an axis of free size counts as it is in the example."""
    size = 1
    for dim in shape:
        size *= int(dim) if isinstance(dim, int) else dim.node.hint or 1
    return size
