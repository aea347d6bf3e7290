# SPDX-License-Identifier: Apache-2.0
"""A QuantizeLinear and its DequantizeLinear as float operators, which fuse with their neighbours.

k = clip(rint(x / s), -128 - z, 127 - z)            the code, less its zero point
rounded = k * s                                     what DequantizeLinear gives
saturated = clip(x, (-128 - z) * s, (127 - z) * s)  has the codes of x; for readers of codes

FP8 is rounded by a Cast to it and one back: k = e4m3(clip(x / s, -448, 448)).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, take_name
from quantrt.quantize.explicit.grids import CodeGrid

__all__ = ["RoundingWriter"]


_FP8 = ir.DataType.FLOAT8E4M3FN


class RoundingWriter:
    """Writes the nodes of one rounding in front of others.

    Args:
        before: the QuantizeLinear node that they replace; new nodes go by its name.
        x: what it rounds.
        taken: names of all nodes and values of the graph; those of what is written are added.
    """

    def __init__(
        self, graph: ir.Model, before: ir.Node, x: ir.Value, grid: CodeGrid, taken: set[str]
    ) -> None:
        self.x = x
        self.grid = grid
        self._graph = graph
        self._before = before
        self._taken = taken
        self._scale: ir.Value | None = None
        self._steps: ir.Value | None = None

    def rounded(self) -> ir.Value:
        """What DequantizeLinear gives."""
        return self._add("Mul", "rounded", self._codes(), self._step_size())

    def saturated(self) -> ir.Value:
        """The value within the range of its codes: what a kernel for floats reads instead of them.

        It takes over the name of x, unless x is an output of the model.
        """
        zero, scale = self.grid.zero_point, self.grid.scale
        bounds = ((self.grid.lowest - zero) * scale, (self.grid.highest - zero) * scale)
        lo, hi = self._number("lowest", bounds[0]), self._number("highest", bounds[1])
        value = self._add("Clip", "saturate", self.x, lo, hi)
        if not self.x.is_graph_output():
            name = self.x.name
            self.x.name = take_name(f"{name}_unsaturated", self._taken)
            value.name = name
        return value

    def _codes(self) -> ir.Value:
        if self._steps is None:
            zero = self.grid.zero_point
            steps = self._add("Div", "divide", self.x, self._step_size())
            if not self.grid.dtype.is_float:
                steps = self._add("Round", "rint", steps)
            lo, hi = (
                self._number("min", self.grid.lowest - zero),
                self._number("max", self.grid.highest - zero),
            )
            self._steps = self._add("Clip", "clip", steps, lo, hi)
            if self.grid.dtype.is_float:
                self._steps = self._cast(self._cast(self._steps, "round", _FP8), "widen", ir.DataType.FLOAT)
        return self._steps

    def _step_size(self) -> ir.Value:
        if self._scale is None:
            self._scale = self._number("scale", self.grid.scale)
        return self._scale

    def _number(self, what: str, value: float) -> ir.Value:
        name = f"{self._before.name}_{what}"
        return add_constant(self._graph, name, np.asarray(value, np.float32), self._taken)

    def _add(self, op_type: str, what: str, *inputs: ir.Value) -> ir.Value:
        name = take_name(f"{self._before.name}_{what}", self._taken)
        node = ir.node(op_type, list(inputs), name=name)
        node.outputs[0].name = take_name(f"{name}_output", self._taken)
        node.outputs[0].shape, node.outputs[0].type = self.x.shape, ir.TensorType(ir.DataType.FLOAT)
        self._graph.graph.insert_before(self._before, node)
        return node.outputs[0]

    def _cast(self, x: ir.Value, what: str, dtype: ir.DataType) -> ir.Value:
        y = self._add("Cast", what, x)
        node = y.producer()
        if node is not None:
            node.attributes["to"] = ir.AttrInt64("to", int(dtype))
        y.type = ir.TensorType(dtype)
        return y
