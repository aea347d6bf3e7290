# SPDX-License-Identifier: Apache-2.0
"""A product with a constant matrix and its bias, however it is spelled: what passes merge and split."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, float_attribute, int_attribute, is_operator, only_consumer
from quantrt.threads import usable_cores

__all__ = ["ConstantProduct", "product_of", "remove_nodes", "side_by_side"]

LARGE_BYTES = 1 << 22
"""Of a matrix that several cores copy: most of the time new memory is what is waited for."""


@dataclass(frozen=True)
class ConstantProduct:
    """x @ weight + bias.

    Attributes:
        nodes: a MatMul or Gemm, and the Add behind a MatMul that is taken with it.
        weight: [K, N].
        bias: [N], of a Gemm or of the Add; None without one.
        result: what the last of the nodes makes.
    """

    nodes: tuple[ir.Node, ...]
    weight: np.ndarray
    bias: np.ndarray | None
    result: ir.Value


def product_of(node: ir.Node, *, takes_add: bool) -> ConstantProduct | None:
    """The product that a node is; None where it is more than that, or its left side is constant too.

    Args:
        takes_add: whether the bias may be that of an Add which alone reads a MatMul.
    """
    if not is_operator(node, "MatMul", "Gemm") or node.inputs[0] is None:
        return None
    weight = constant_of(node.inputs[1])
    if weight is None or weight.ndim != 2 or constant_of(node.inputs[0]) is not None:
        return None
    bias: np.ndarray | None = None
    nodes: tuple[ir.Node, ...] = (node,)
    if is_operator(node, "Gemm"):
        scales = (float_attribute(node, "alpha", 1.0), float_attribute(node, "beta", 1.0))
        if scales != (1.0, 1.0) or int_attribute(node, "transA", 0):
            return None
        weight = weight.T if int_attribute(node, "transB", 0) else weight
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            bias = _vector(node.inputs[2], weight.shape[1])
            if bias is None:
                return None
    elif takes_add:
        add = only_consumer(node.outputs[0])
        if add is not None and is_operator(add, "Add") and add.graph is node.graph:
            bias = _vector(add.inputs[1 if add.inputs[0] is node.outputs[0] else 0], weight.shape[1])
            nodes = (node, add) if bias is not None else nodes
    return ConstantProduct(nodes, weight, bias, nodes[-1].outputs[0])


def remove_nodes(graph: ir.Model, nodes: tuple[ir.Node, ...]) -> None:
    """Remove nodes whose results nothing reads any more, and the constants that were theirs alone."""
    constants = [value for node in nodes for value in node.inputs if constant_of(value) is not None]
    for node in reversed(nodes):
        graph.graph.remove(node, safe=True)
    for value in constants:
        if value is not None and not value.uses() and graph.graph.initializers.get(value.name or "") is value:
            del graph.graph.initializers[value.name or ""]


def _vector(value: ir.Value | None, size: int) -> np.ndarray | None:
    """A constant of shape [size]."""
    array = constant_of(value)
    return array if array is not None and array.shape == (size,) else None


def side_by_side(weights: Sequence[np.ndarray]) -> np.ndarray:
    """Matrices [K, N] of one type as one, their columns in a row."""
    dtype, depth = weights[0].dtype, len(weights[0])
    whole = np.empty((depth, sum(weight.shape[1] for weight in weights)), dtype)
    if whole.nbytes < LARGE_BYTES:
        return np.concatenate(weights, axis=1, out=whole)
    bounds = np.linspace(0, depth, usable_cores() + 1).astype(int)

    def copy(part: slice) -> None:
        np.concatenate([weight[part] for weight in weights], axis=1, out=whole[part])

    with ThreadPoolExecutor(usable_cores()) as pool:  # numpy copies without Python's lock
        list(pool.map(copy, map(slice, bounds[:-1], bounds[1:])))
    return whole
