# SPDX-License-Identifier: Apache-2.0
"""What it costs to leave a region float where nothing can be timed: operations, counted from shapes.

    operations = multiply-adds of its products + elements that its nodes make

A product's time is that of its multiply-adds, to a first approximation, whatever the device. What multiplies
nothing, such as a residual sum, counts with one operation for each element: so little that its damage alone
decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.assign.tables.region import Region
from quantrt.ir.clone import clone
from quantrt.ir.edit import is_operator
from quantrt.ir.multiply_adds import PRODUCTS, multiply_adds
from quantrt.ir.shapes import infer_shapes

__all__ = ["Operations"]


@dataclass(frozen=True)
class Operations:
    """Of one run of a float graph.

    Attributes:
        products: multiply-adds, by node that multiplies.
        elements: that each node makes, by node.
    """

    products: Mapping[str, int]
    elements: Mapping[str, int]

    @classmethod
    def count(cls, graph: ir.Model, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Operations:
        """Those of inputs of these shapes; a size that is not known even then counts as 1."""
        shaped = clone(graph)
        for value in shaped.graph.inputs:
            array = inputs.get(value.name or "")
            value.shape = value.shape if array is None else ir.Shape(array.shape)
        infer_shapes(shaped)
        products = {
            node.name or "": multiply_adds(node) or 1 for node in shaped.graph if is_operator(node, *PRODUCTS)
        }
        return cls(products, {node.name or "": _elements(node.outputs[0]) for node in shaped.graph})

    def of(self, region: Region) -> int:
        """All operations of a region."""
        return sum(self.products.get(node, 0) + self.elements.get(node, 0) for node in region.nodes)

    def product_ratio(self, nodes: Iterable[str]) -> float:
        """Multiply-adds of some nodes over those of all; 0 where nothing multiplies."""
        total = sum(self.products.values())
        return sum(self.products.get(node, 0) for node in set(nodes)) / total if total else 0.0


def _elements(value: ir.Value) -> int:
    if value.shape is None:
        return 1
    return prod(size if isinstance(size, int) else 1 for size in value.shape)
