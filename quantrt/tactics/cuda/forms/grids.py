# SPDX-License-Identifier: Apache-2.0
"""On which grids the edges of a graph read codes, those among them that nothing but moves elements to."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from quantrt.dtypes import INT8
from quantrt.quantize.placement.operands import rule_of
from quantrt.quantize.quantized_model import QuantizedModel, Use
from quantrt.tactics.cuda.forms.slots import Slot

__all__ = ["CodeStep", "Grids"]

CodeStep = tuple[float, int]
"""Scale and zero point: x = (code - zero point) * scale."""


class Grids:
    """On which grid each edge reads codes.

    Args:
        leaving: scales of outputs that the caller gets as codes: whatever reads these reads them too.
    """

    def __init__(
        self, graph: ir.Graph, quantized: QuantizedModel | None, leaving: Mapping[str, float]
    ) -> None:
        self.uses: Mapping[Use, str] = {} if quantized is None else quantized.placement.uses
        self.weights: frozenset[Use] = frozenset() if quantized is None else _beside_codes(quantized)
        self.carried: dict[str, str] = {}
        self.movers: set[str] = set()
        self.types: dict[str, str] = {}
        self.scales: dict[str, float] = dict(leaving)
        self.zero_points: dict[str, int] = {}
        if quantized is None:
            return
        for name, qparams in quantized.activations.items():
            if name not in self.scales:
                self._put(name, (float(qparams.scale), int(qparams.zero_point)))
            if qparams.dtype != INT8 and self.scales[name] == float(qparams.scale):
                self.types[name] = qparams.dtype.name
        for node in graph:
            rule = rule_of(node, quantized.target)
            if rule is None or not rule.passes or not node.inputs or node.inputs[0] is None:
                continue
            found = [self._grid(node, index) for index in range(_moved_inputs(node))]
            grid = found[0]
            if grid is None or (rule.grid is not None and self._type(grid) != rule.grid.dtype.name):
                continue
            if all(self._is_same(grid, other) for other in found[1:]):
                self.movers.add(node.name or "")
                for output in node.outputs:
                    self.carried[output.name or ""] = grid
                    self._put(output.name or "", self._step(grid))
                    self._take_type(output.name or "", self.types.get(grid))

    def _grid(self, node: ir.Node, index: int) -> str | None:
        """The value on whose grid an input is, or None."""
        value = node.inputs[index]
        name = (value.name if value is not None else None) or ""
        return self.uses.get((node.name or "", index)) or self.carried.get(name)

    def _is_same(self, grid: str, other: str | None) -> bool:
        return other is not None and self._step(other) == self._step(grid)

    def _type(self, value: str) -> str:
        """Numpy's name of the type of a value's codes."""
        return self.types.get(value, INT8.name)

    def _step(self, value: str) -> CodeStep | None:
        """Scale and zero point of a value; None where it has no codes."""
        return (self.scales[value], self.zero_points.get(value, 0)) if value in self.scales else None

    def _put(self, value: str, step: CodeStep | None) -> None:
        if step is None:
            return
        self.scales[value], zero_point = step
        self.zero_points.pop(value, None)
        if zero_point:
            self.zero_points[value] = zero_point

    def join_moved(self, value: str, outputs: Collection[str], coded: Collection[str]) -> bool:
        """Whether a value is on the grid of what its elements are moved to; without a grid it is put there.

        Args:
            outputs: what its elements are moved to.
            coded: those that are read as codes.
        """
        found = {self._step(output) for output in coded}
        step = found.pop() if len(found) == 1 else None
        if step is not None and value not in self.scales:
            self._take_type(value, next((self.types[x] for x in outputs if x in self.types), None))
            self._put(value, step)
        return step is not None and self._step(value) == step

    def _take_type(self, value: str, dtype: str | None) -> None:
        """Note the type of a value's codes; None for int8."""
        if dtype is not None:
            self.types[value] = dtype

    def join_parts(self, values: Collection[str], output: str) -> bool:
        """Whether all values are on the grid of the output that they are parts of; as in `join_moved`."""
        step = self._step(output)
        if step is None or any(self._step(value) not in (None, step) for value in values):
            return False
        for value in values:
            self._put(value, step)
            self._take_type(value, self.types.get(output))
        return True

    def has_codes(self, slot: Slot) -> bool:
        """Whether the edge reads codes."""
        return (slot.use is not None and slot.use in self.uses) or slot.value in self.carried


def _beside_codes(quantized: QuantizedModel) -> frozenset[Use]:
    """Weights that codes are multiplied with; others that have codes are the floats that these stand for."""
    floats = {decision.node for decision in quantized.placement.decisions if not decision.is_int8}
    return frozenset(use for use in quantized.weights if use[0] not in floats)


def _moved_inputs(node: ir.Node) -> int:
    """How many of the inputs of a node that moves values these are."""
    return len(node.inputs) if node.op_type == "Concat" else 1
