# SPDX-License-Identifier: Apache-2.0
"""Products of an OpenVINO model: their multiply-adds, and whether they read codes."""

__all__ = ["Product", "products"]

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from benchmarks.tasks.inputs import Feed

OPERATIONS = frozenset({"Convolution", "GroupConvolution", "ConvolutionBackpropData", "MatMul"})

MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "MaxPool"})
"""What OpenVINO moves codes through."""


@dataclass(frozen=True)
class Product:
    """One product.

    Attributes:
        multiply_adds: of one run.
        is_float: whether it does not read what was just quantized.
    """

    multiply_adds: int
    is_float: bool


def products(path: Path, sample: Feed) -> list[Product]:
    """Those of a model's file, for inputs of the shapes of a sample."""
    import openvino

    model = openvino.Core().read_model(path)
    model.reshape({name: list(array.shape) for name, array in sample.items()})
    return [
        Product(_multiply_adds(node), not _reads_codes(node.input_value(0).get_node()))
        for node in model.get_ops()
        if node.get_type_name() in OPERATIONS
    ]


def _multiply_adds(node: Any) -> int:
    read, weight, made = (
        list(shape) for shape in (*map(node.get_input_shape, (0, 1)), node.get_output_shape(0))
    )
    kind = node.get_type_name()
    if kind == "Convolution":  # [out, in, places ...]
        return prod(made) * prod(weight[1:])
    if kind == "GroupConvolution":  # [groups, out, in, places ...]
        return prod(made) * prod(weight[2:])
    if kind == "ConvolutionBackpropData":  # [in, out, places ...]
        return prod(read) * prod(weight[1:])
    return prod(made) * read[-2 if node.get_attributes()["transpose_a"] else -1]


def _reads_codes(node: Any) -> bool:
    """Whether values come from a FakeQuantize, through nothing but moves."""
    while node.get_type_name() in MOVES:
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "FakeQuantize")
