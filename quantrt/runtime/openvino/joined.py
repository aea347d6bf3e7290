# SPDX-License-Identifier: Apache-2.0
"""Products of matrices that OpenVINO would join into one kernel, and get wrong.

    MatMul(int8) -> Add, Multiply, Relu, Clamp or nothing -> FakeQuantize -> MatMul(int8)

Of two or more such products of matrices of two dimensions, of at most 256 x 256 weights and at most 8 rows
(4, 6 or 8 when it runs several threads), OpenVINO 2026.4 makes one kernel ("Subgraph"), which reads integer
sums as floats: the outputs are zeros, or huge. In floats, or with another activation between,
that kernel is right; so is what runs without it. That needs its option SNIPPETS_MODE, of the whole model,
which takes its joined attention and joined elementwise kernels too: it is used for such models alone.
"""

from __future__ import annotations

from typing import Any

import openvino

__all__ = ["HAS_CODES", "WITHOUT_JOINED", "joins_products"]

WITHOUT_JOINED = {"SNIPPETS_MODE": "DISABLE"}
"""The options of a model that `joins_products`."""

_INTEGER_STEPS = ("Add", "Subtract", "Multiply", "Divide", "Relu", "Clamp", "Maximum", "Minimum", "Convert")
"""What is computed on the sums themselves, or on their multiples."""

_QUANTIZER = "FakeQuantize"

HAS_CODES = f'type="{_QUANTIZER}"'.encode()
"""In the IR of every model with codes; without it no node need be looked at."""


def joins_products(model: openvino.Model) -> bool:
    """Whether a product of two-dimensional codes comes straight from another one."""
    nodes = model.get_ordered_ops()
    if not any(node.get_type_name() == _QUANTIZER for node in nodes):
        return False
    return any(_is_product(node) and _comes_from_product(node) for node in nodes)


def _is_product(node: Any) -> bool:
    """Whether a node multiplies rows by a matrix."""
    if node.get_type_name() != "MatMul":
        return False
    rank = node.get_output_partial_shape(0).rank
    return bool(rank.is_static and rank.get_length() == 2)


def _comes_from_product(product: Any) -> bool:
    """Whether the rows are codes of another product's sums."""
    frontier = [(value.get_node(), False) for value in product.input_values()]
    seen = set()
    while frontier:
        node, is_quantized = frontier.pop()
        key = (node.get_friendly_name(), is_quantized)
        kind = node.get_type_name()
        if is_quantized and _is_product(node):
            return True
        if key not in seen and (kind == _QUANTIZER or kind in _INTEGER_STEPS):
            seen.add(key)
            is_quantized = is_quantized or kind == _QUANTIZER
            frontier += [(value.get_node(), is_quantized) for value in node.input_values()]
    return False
