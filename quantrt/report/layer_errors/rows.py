# SPDX-License-Identifier: Apache-2.0
"""Convolutions of rows as the products that the float model has: what quantrt.plan.onnxruntime.rows made."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.edit import (
    add_constant,
    constant_of,
    int_attribute,
    is_operator,
    remove_constants,
    take_place,
)
from quantrt.plan.onnxruntime.rows import MOVES

__all__ = ["in_rows", "multiply_rows"]

KERNEL_RANK = 3


def multiply_rows(graph: ir.Model, floats: ir.Model) -> ir.Model:
    """The graph of an engine, or a copy of it with a Gemm where the float model has one of the same name."""
    products = {node.name: node for node in floats.graph if is_operator(node, "Gemm")}
    if not any(_is_of_rows(node, products) for node in graph.graph):
        return graph
    copy = clone(graph)
    for node in list(copy.graph):
        if _is_of_rows(node, products):
            _multiply(copy, node, is_transposed=bool(int_attribute(products[node.name], "transB", 0)))
    given = {node.name for node in floats.graph}
    for node in list(copy.graph):
        if node.name not in given and (node.name or "").endswith(MOVES):
            _bypass(copy, node)
    return copy


def in_rows(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """What an engine computes, in the shape that the float model has it in: [1, N, M] turned to [M, N]."""
    if array.ndim == KERNEL_RANK and array.shape == (1, *reversed(shape)):
        array = array[0].T
    return array.reshape(shape)


def _is_of_rows(node: ir.Node, products: dict[str | None, ir.Node]) -> bool:
    return is_operator(node, "Conv") and node.name in products


def _multiply(graph: ir.Model, conv: ir.Node, *, is_transposed: bool) -> None:
    columns, kernel, *bias = conv.inputs
    decoder = None if kernel is None else kernel.producer()
    source = None if decoder is None else decoder.inputs[0]
    codes = constant_of(source)
    assert decoder is not None and source is not None and codes is not None and codes.ndim == KERNEL_RANK
    matrix = codes[:, :, 0] if is_transposed else codes[:, :, 0].T
    stored = add_constant(graph, f"{source.name}_rows", matrix)
    axis = 0 if is_transposed else 1
    made = ir.node("DequantizeLinear", [stored, *decoder.inputs[1:]], {"axis": axis}, name=decoder.name)
    made.outputs[0].name = decoder.outputs[0].name
    gemm = ir.node("Gemm", [columns, made.outputs[0], *bias], {"transB": int(is_transposed)}, name=conv.name)
    take_place(graph, conv, [made, gemm], gemm.outputs[0])
    constants = tuple(decoder.inputs)
    graph.graph.remove(decoder, safe=True)
    remove_constants(graph, constants)


def _bypass(graph: ir.Model, node: ir.Node) -> None:
    """Take away what moves rows: a Reshape or a Transpose."""
    source, *shape = node.inputs
    if is_operator(node, "Reshape", "Transpose") and source is not None:
        node.outputs[0].replace_all_uses_with(source)
        graph.graph.remove(node, safe=True)
        remove_constants(graph, shape)
