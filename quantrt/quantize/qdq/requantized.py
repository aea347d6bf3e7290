# SPDX-License-Identifier: Apache-2.0
"""Products that a Q/DQ model leaves float, and that ONNX Runtime would make int8 after all.

Its optimizer WeightBiasQuantization (github.com/microsoft/onnxruntime, pull request 22969; in every release
from 1.21 on) takes codes on both sides of a product for a weight that was forgotten: it rounds the weight per
tensor and the bias, and an integer kernel follows. A layer that was kept float for its accuracy is such one.
"""

from __future__ import annotations

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator

__all__ = ["requantized_products"]

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm")
_BETWEEN = ("Relu", "Clip")
"""What may stand between a product and the QuantizeLinear behind it."""


def requantized_products(graph: ir.Model) -> tuple[str, ...]:
    """Names of the products with a constant float32 weight that read codes and make codes alone."""
    return tuple(
        node.name or ""
        for node in graph.graph.all_nodes()
        if is_operator(node, *_PRODUCTS)
        and _has_float_weight(node)
        and _reads_codes(node)
        and _makes_codes(node)
    )


def _has_float_weight(node: ir.Node) -> bool:
    weight = constant_of(node.inputs[1])
    return weight is not None and weight.dtype == "float32"


def _reads_codes(node: ir.Node) -> bool:
    """Whether the input comes from codes that share one scale."""
    source = node.inputs[0]
    maker = source.producer() if source is not None else None
    if maker is None or not is_operator(maker, "DequantizeLinear"):
        return False
    scale = constant_of(maker.inputs[1])
    return scale is not None and scale.size == 1


def _makes_codes(node: ir.Node) -> bool:
    """Whether one QuantizeLinear reads the output, behind activations that clip, and nothing else does."""
    while True:
        readers = [use.node for use in node.outputs[0].uses()]
        if len(readers) != 1:
            return False
        node = readers[0]
        if not is_operator(node, *_BETWEEN):
            return is_operator(node, "QuantizeLinear")
