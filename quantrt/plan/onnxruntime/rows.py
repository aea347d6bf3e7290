# SPDX-License-Identifier: Apache-2.0
"""Products of codes in a row as convolutions, whose kernel in ONNX Runtime has no zero point per column.

    codes [M, K] -> DequantizeLinear -> Gemm -> Relu -> QuantizeLinear -> ... -> codes [M, N]
    codes [1, K, M] -> DequantizeLinear -> Conv 1 -> Relu -> QuantizeLinear -> ... -> codes [1, N, M]

Behind a weight with a scale per column its QGemm wants a zero point per column too, though all are 0, and
sums rows for them; QLinearConv takes one for all. Both add the same integers and round them by the same
factors. Rows are moved in front of the first and behind the last of a run: ONNX Runtime keeps channels last,
so that its own transpositions take back these, and a Reshape is left of each. Ten products of an autoencoder
take 14.6 us so, and 20.7 with its QGemm (`toycar` of docs/results/assignment-peers-cpu.md). ONNX
Runtime refuses a batch without a row in this form, which quantrt.runtime.no_samples keeps from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    add_constant,
    all_names,
    constant_of,
    int_attribute,
    is_operator,
    only_consumer,
    remove_constants,
    take_name,
    take_place,
)
from quantrt.quantize.placement.operands import is_plain_gemm

__all__ = ["MOVES", "convolve_rows"]

MOVES = COLUMNS, TURNED, TURNED_BACK, ROWS = (".columns", ".turned", ".turned_back", ".rows")
"""Behind the name of a product, of what moves rows in front of it and behind it."""

TURN = [0, 2, 1]
"""[1, M, K] to [1, K, M], and back."""


@dataclass(frozen=True)
class _Product:
    """A Gemm of codes that makes codes.

    Attributes:
        source: dequantizes what it multiplies.
        weight: dequantizes its weight.
        rounding: makes its codes.
    """

    node: ir.Node
    source: ir.Node
    weight: ir.Node
    rounding: ir.Node

    @property
    def codes(self) -> ir.Value:
        """What it makes."""
        return self.rounding.outputs[0]


def convolve_rows(graph: ir.Model) -> None:
    """Make convolutions of such products; in place."""
    products = _in_runs(graph.graph)
    if not products:
        return
    columns = _Columns(graph)
    for product in products:
        columns.convolve(product)
    columns.finish()


def _in_runs(graph: ir.Graph) -> list[_Product]:
    """Products that read what another makes, or make what another reads: one alone is not worth moving."""
    products = list(_products(graph))
    makers = {product.codes: product for product in products}
    pairs = [
        (makers[codes], product)
        for product in products
        if (codes := product.source.inputs[0]) is not None and codes in makers
    ]
    linked = {product.node for pair in pairs for product in pair}
    return [product for product in products if product.node in linked]


def _products(graph: ir.Graph) -> Iterator[_Product]:
    for node in graph:
        if not is_operator(node, "Gemm") or not is_plain_gemm(node):
            continue
        source, weight = (None if value is None else value.producer() for value in node.inputs[:2])
        rounding = _rounding(node)
        if source is None or weight is None or rounding is None or not _is_scalar_decoder(source, graph):
            continue
        if _is_weight(weight, node) and _has_plain_bias(node):
            yield _Product(node, source, weight, rounding)


def _rounding(node: ir.Node) -> ir.Node | None:
    """The node that rounds a product to codes, alone with its Relu where the codes begin at 0."""
    reader = only_consumer(node.outputs[0])
    is_clipped = is_operator(reader, "Relu")
    if reader is not None and is_clipped:
        reader = only_consumer(reader.outputs[0])
    if reader is None or not is_operator(reader, "QuantizeLinear") or len(reader.inputs) < len("xsz"):
        return None
    zero = constant_of(reader.inputs[2])
    if zero is None or zero.size != 1 or reader.outputs[0].is_graph_output():
        return None
    return reader if not is_clipped or int(zero.reshape(())) == np.iinfo(zero.dtype).min else None


def _is_scalar_decoder(node: ir.Node, graph: ir.Graph) -> bool:
    """Whether a node dequantizes 8-bit codes that are no constant, on one scale."""
    if not is_operator(node, "DequantizeLinear") or node.graph is not graph or len(node.inputs) < len("xsz"):
        return False
    scale, zero = (constant_of(value) for value in node.inputs[1:3])
    is_constant = constant_of(node.inputs[0]) is not None
    is_one = scale is not None and zero is not None and scale.size == zero.size == 1
    return is_one and not is_constant and zero is not None and zero.dtype in (np.int8, np.uint8)


def _is_weight(node: ir.Node, gemm: ir.Node) -> bool:
    """Whether a node dequantizes a constant matrix of int8 codes on a scale for each of several columns."""
    if not is_operator(node, "DequantizeLinear") or int_attribute(node, "block_size", 0):
        return False
    codes, scale = constant_of(node.inputs[0]), constant_of(node.inputs[1])
    zero = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if codes is None or scale is None or codes.ndim != 2 or codes.dtype != np.int8:
        return False
    axis = 0 if int_attribute(gemm, "transB", 0) else 1
    by_columns = scale.ndim == 1 and scale.size == codes.shape[axis] > 1
    has_zeros = len(node.inputs) == len("xs") or (zero is not None and not zero.any())
    return by_columns and has_zeros and int_attribute(node, "axis", 1) % 2 == axis


def _has_plain_bias(gemm: ir.Node) -> bool:
    """Whether there is no bias, or int32 codes of one number for each column."""
    bias = gemm.inputs[2] if len(gemm.inputs) > 2 else None
    decoder = None if bias is None else bias.producer()
    if bias is None or decoder is None:
        return bias is None
    codes = constant_of(decoder.inputs[0]) if is_operator(decoder, "DequantizeLinear") else None
    return codes is not None and codes.dtype == np.int32 and codes.ndim == 1


class _Columns:
    """Codes as [1, K, M] in the place of [M, K]."""

    def __init__(self, graph: ir.Model) -> None:
        self._graph = graph
        self._taken = all_names(graph)
        self._made: dict[ir.Value, tuple[str, int]] = {}  # in columns now: whose they are, and how many
        self._turned: dict[ir.Value, ir.Value] = {}  # columns by rows
        self._decoded: dict[ir.Node, ir.Value] = {}  # floats in columns, by what decodes rows

    def convolve(self, product: _Product) -> None:
        """Put a convolution where a product is; its codes are in columns from now on."""
        gemm, name = product.node, product.node.name or ""
        kernel, shape = self._kernel(product)
        operands = [self._floats(product.source, name, shape[1]), kernel, *gemm.inputs[2:]]
        conv = ir.node("Conv", operands, {"kernel_shape": [1]}, name=name)
        conv.metadata_props.update(gemm.metadata_props)
        take_place(self._graph, gemm, [conv], conv.outputs[0])
        made, reader = conv.outputs[0], only_consumer(conv.outputs[0])
        while reader is not None and made is not product.codes:
            made.shape = None
            made, reader = reader.outputs[0], only_consumer(reader.outputs[0])
        product.codes.shape = None
        self._made[product.codes] = name, shape[0]
        for decoder in (product.source, product.weight):
            if not decoder.outputs[0].uses():
                constants = tuple(decoder.inputs)
                self._graph.graph.remove(decoder, safe=True)
                remove_constants(self._graph, constants)

    def finish(self) -> None:
        """Give rows to all who read columns and do not convolve them."""
        own = {value.producer() for value in self._decoded.values()}
        for codes, (name, count) in self._made.items():
            others = [(use.node, use.idx) for use in codes.uses() if use.node not in own]
            if others:
                turned = self._add("Transpose", [codes], {"perm": TURN}, f"{name}{TURNED_BACK}")
                shape = add_constant(self._graph, f"{name}.rows_shape", np.array([-1, count]), self._taken)
                rows = self._add("Reshape", [turned, shape], {}, f"{name}{ROWS}")
                for reader, index in others:
                    reader.replace_input_with(index, rows)
        self._graph.graph.sort()

    def _kernel(self, product: _Product) -> tuple[ir.Value, tuple[int, ...]]:
        """The weight of a product as floats [N, K, 1] of the same codes and scales; its shape."""
        source, scale = product.weight.inputs[:2]
        codes = constant_of(source)
        assert source is not None and codes is not None
        matrix = codes if int_attribute(product.node, "transB", 0) else codes.T
        stored = add_constant(self._graph, f"{source.name}_kernel", matrix[:, :, None], self._taken)
        name = f"{product.weight.name}_kernel"
        return self._add("DequantizeLinear", [stored, scale], {"axis": 0}, name), matrix.shape

    def _floats(self, decoder: ir.Node, name: str, count: int) -> ir.Value:
        """What a node decodes, in columns.

        Args:
            name: of a product that reads them.
            count: of them.
        """
        if decoder not in self._decoded:
            rows, *grid = decoder.inputs
            assert rows is not None
            if rows not in self._made and rows not in self._turned:
                shape = add_constant(
                    self._graph, f"{name}.columns_shape", np.array([1, -1, count]), self._taken
                )
                parted = self._add("Reshape", [rows, shape], {}, f"{name}{COLUMNS}")
                self._turned[rows] = self._add("Transpose", [parted], {"perm": TURN}, f"{name}{TURNED}")
            columns = self._turned.get(rows, rows)
            self._decoded[decoder] = self._add(
                "DequantizeLinear", [columns, *grid], {}, f"{decoder.name}_columns"
            )
        return self._decoded[decoder]

    def _add(
        self, op_type: str, inputs: list[ir.Value | None], attributes: dict[str, int | list[int]], name: str
    ) -> ir.Value:
        """What a new node makes; `finish` puts it in order."""
        name = take_name(name, self._taken)
        node = ir.node(op_type, inputs, attributes, name=name)
        made = node.outputs[0]
        made.name = f"{name}_output"
        self._graph.graph.append(node)
        return made
