# SPDX-License-Identifier: Apache-2.0
"""How many products of a quantized model compute on codes: counted in the file that a tool makes of it."""

__all__ = ["file_products", "placed_products"]

from pathlib import Path
from typing import Any

import onnx

from benchmarks.openvino_products import products
from benchmarks.tasks.inputs import Feed
from quantrt.ir.edit import is_operator
from quantrt.ir.multiply_adds import PRODUCTS
from quantrt.model.file.check import all_nodes
from quantrt.quantize.quantized_model import QuantizedModel

MOVES = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""What codes go through as they are."""


def file_products(path: Path, sample: Feed) -> dict[str, Any]:
    """Of OpenVINO IR or of an ONNX file: `products`, how many of these are `in_floats`, JSON-ready.

    Args:
        sample: of the shapes that the multiply-adds of OpenVINO IR are counted at: `float_ratio` is the share
            of the products in floats.
    """
    if path.suffix != ".xml":
        return _onnx_products(onnx.load(path, load_external_data=False).graph)
    found = products(path, sample)
    floats = [one for one in found if one.is_float]
    total = sum(one.multiply_adds for one in found)
    return {
        "products": len(found),
        "in_floats": len(floats),
        "float_ratio": sum(one.multiply_adds for one in floats) / total if total else 0.0,
    }


def placed_products(quantized: QuantizedModel) -> dict[str, Any]:
    """Of a model of QuantRT's: `products` and `in_floats`, JSON-ready."""
    codes = {row.node for row in quantized.placement.decisions if row.is_int8}
    names = [node.name for node in quantized.model.graph.graph if is_operator(node, *PRODUCTS)]
    return {"products": len(names), "in_floats": sum(name not in codes for name in names)}


def _onnx_products(graph: onnx.GraphProto) -> dict[str, Any]:
    """A product is on codes where both of its operands are, through nothing but moves."""
    nodes = list(all_nodes(graph))
    makers = {name: node for node in nodes for name in node.output}
    found = [node for node in nodes if node.op_type in PRODUCTS]
    floats = [node for node in found if not all(_is_coded(name, makers) for name in node.input[:2])]
    return {"products": len(found), "in_floats": len(floats)}


def _is_coded(name: str, makers: dict[str, onnx.NodeProto]) -> bool:
    maker = makers.get(name)
    while maker is not None and maker.op_type in MOVES:
        maker = makers.get(maker.input[0])
    return maker is not None and maker.op_type == "DequantizeLinear"
