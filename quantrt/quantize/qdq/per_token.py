# SPDX-License-Identifier: Apache-2.0
"""Scales of each row, spelled as nodes: x W = s ((x / s) W) with s = max |row of x| / qmax.

What a product reads then is a row whose largest magnitude is qmax: its codes are on a grid of scale 1 that is
known before the model runs, so that every runtime with int8 products of static scales has one for it. The
arithmetic is that of a QuantizeLinear with the scale s: a code is rint(x / s). (Dettmers et al. 2022,
"LLM.int8()", section 2.1, and Xiao et al. 2023, "SmoothQuant", section 3, have such scales.)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from quantrt.dtypes import FP8
from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant, free_name, is_operator, only_consumer
from quantrt.quantize.quantized_model import QuantizedModel, Use
from quantrt.quantize.scales.qparams import QParams, given_qparams
from quantrt.quantize.target import Grid

__all__ = ["spell_per_token"]

AXES_INPUT_OPSET = 18
"""From here on ReduceMax has its axes as an input."""

LEAST = float(np.finfo(np.float32).tiny) * 512
"""Least row maximum that is divided by: of a smaller one the scale would not be a normal number."""


def spell_per_token(quantized: QuantizedModel) -> QuantizedModel:
    """The model with nodes for the scales of rows, where it has such, and static grids alone.

    The graph is a clone; nodes and results keep their names.
    """
    edges = quantized.placement.per_token
    if not edges:
        return quantized
    graph, grid = clone(quantized.graph), quantized.target.activation
    rows = _Rows(graph, 448.0 if grid.dtype == FP8 else 127.0)
    uses = dict(quantized.placement.uses)
    for node in list(graph.graph):
        edge = (node.name or "", 0)
        if edge in edges:
            scaled = rows.scale_product(node, uses.pop(edge, None))
            uses |= scaled.rounded | {edge: scaled.name}
    made = rows.names
    placement = replace(
        quantized.placement,
        values=quantized.placement.values | made,
        uses=uses,
        per_token=frozenset(),
    )
    activations = {**quantized.activations, **dict.fromkeys(made, _unit(grid))}
    return replace(quantized, graph=graph, placement=placement, activations=activations)


def _unit(grid: Grid) -> QParams:
    """The grid of scale 1 around zero."""
    return given_qparams(1.0, dtype=grid.dtype, qmin=grid.qmin, qmax=grid.qmax)


@dataclass(frozen=True)
class _Scaled:
    """Rows over their scales.

    Attributes:
        rows: x / s.
        scale: s, [..., 1].
        rounded: edges of the new nodes that read x on a grid, as the product did.
    """

    rows: ir.Value
    scale: ir.Value
    rounded: dict[Use, str]

    @property
    def name(self) -> str:
        """Of the rows."""
        return self.rows.name or ""


@dataclass
class _Rows:
    """Adds nodes to one graph; products of one value share its scales.

    Attributes:
        largest: the magnitude that the largest of each row gets.
    """

    graph: ir.Model
    largest: float
    made: dict[tuple[ir.Value, str | None], _Scaled] = field(default_factory=dict)
    constants: dict[str, ir.Value] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Of all rows over their scales."""
        return frozenset(scaled.name for scaled in self.made.values())

    def scale_product(self, node: ir.Node, grid: str | None) -> _Scaled:
        """Let a MatMul or Gemm multiply rows over their scales, and multiply its sums with these.

        Args:
            grid: the value on whose grid the product reads x; None where x are floats.
        """
        x, result = node.inputs[0], node.outputs[0]
        assert x is not None  # placement
        if (x, grid) not in self.made:
            self.made[x, grid] = self._scaled(x, node, grid)
        scaled = self.made[x, grid]
        node.replace_input_with(0, scaled.rows)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        reader = only_consumer(result)
        if bias is not None:
            node.resize_inputs(2)
            self._compute_behind("Add", result, bias, f"{node.name}_bias")
        elif is_operator(reader, "Split") and reader is not None:
            # A gate is known by its halves: they are scaled one by one.
            for part in reader.outputs:
                self._compute_behind("Mul", part, scaled.scale, f"{node.name}_scale_rows")
            return scaled
        self._compute_behind("Mul", result, scaled.scale, f"{node.name}_scale_rows")
        return scaled

    def _compute_behind(self, op_type: str, value: ir.Value, other: ir.Value, name: str) -> None:
        """What reads a value, the caller too, reads what an operator makes of it, under its name."""
        readers, known = list(value.uses()), value.name or ""
        value.name = free_name(self.graph, f"{known}_of_rows")
        node = self._node(op_type, [value, other], name, like=value)
        made = node.outputs[0]
        for reader, index in readers:
            reader.replace_input_with(index, made)
        for place, output in enumerate(self.graph.graph.outputs):
            if output is value:
                self.graph.graph.outputs[place] = made
        made.name = known
        maker = value.producer()
        assert maker is not None
        self.graph.graph.insert_after(maker, node)

    def _scaled(self, x: ir.Value, before: ir.Node, grid: str | None) -> _Scaled:
        """The nodes that make the rows of x and their scales, in front of another node."""
        is_input = self.graph.opset_imports.get("", 0) >= AXES_INPUT_OPSET
        axes = [self._constant("row_axis", [-1], np.int64)] if is_input else []
        attributes = {} if is_input else {"axes": [-1]}
        name = x.name or ""
        size = self._node("Abs", [x], f"{name}_magnitude", like=x)
        most = self._node("ReduceMax", [size.outputs[0], *axes], f"{name}_row_max", like=None, **attributes)
        least = self._constant("least_row_max", LEAST)
        kept = self._node("Max", [most.outputs[0], least], f"{name}_row_max_kept", like=None)
        unit = self._constant("row_unit", 1.0 / self.largest)
        scale = self._node("Mul", [kept.outputs[0], unit], f"{name}_row_scale", like=None)
        rows = self._node("Div", [x, scale.outputs[0]], f"{name}_rows", like=x)
        for node in (most, kept, scale):
            made = node.outputs[0]
            made.type = x.type
            made.shape = None if x.shape is None else ir.Shape([*x.shape.dims[:-1], 1])
        self.graph.graph.insert_before(before, [size, most, kept, scale, rows])
        rounded = {} if grid is None else {(node.name or "", 0): grid for node in (size, rows)}
        return _Scaled(rows.outputs[0], scale.outputs[0], rounded)

    def _node(
        self,
        op_type: str,
        inputs: list[ir.Value],
        name: str,
        *,
        like: ir.Value | None,
        **attributes: list[int],
    ) -> ir.Node:
        """A node with one output, of the type and shape of a value; it is in no graph yet."""
        node = ir.node(op_type, inputs, attributes=attributes, name=free_name(self.graph, name))
        made = node.outputs[0]
        made.name = free_name(self.graph, f"{name}_output")
        if like is not None:
            made.shape, made.type = like.shape, like.type
        return node

    def _constant(
        self, name: str, value: float | list[int], dtype: type[np.generic] = np.float32
    ) -> ir.Value:
        if name not in self.constants:
            self.constants[name] = add_constant(self.graph, name, np.array(value, dtype))
        return self.constants[name]
