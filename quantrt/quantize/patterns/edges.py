# SPDX-License-Identifier: Apache-2.0
"""Layers at the edges of a network, which quantization levels leave alone, told by the nodes around them.

The first and the last layer, 1x1 convolutions beside a residual block, layers that make one embedding per
sample (of time, size or text) and spread it over images or tokens, and layers that turn tokens back into an
image: few operations, and every error of theirs goes straight into the result. NVIDIA's diffusion recipes
leave the same layers in float, by their names in diffusers (Model-Optimizer, examples/diffusers).
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator, only_consumer
from quantrt.quantize.patterns.roles import MOVES, Role, data_inputs, is_linear

__all__ = ["edge_layers"]

POINTWISE = (
    "Add", "Cast", "Clip", "Div", "Gelu", "HardSwish", "Identity", "Mul", "Neg", "Relu", "Sigmoid",
    "Softmax", "Split", "Sub", "Swish", "Tanh",
)  # fmt: skip

MAX_NODES = 96
"""Nodes that are walked from one layer at most."""

IMAGE_RANK = 4


def edge_layers(graph: ir.Graph, roles: Mapping[str, Role]) -> dict[str, str]:
    """Names of the convolutions and linear layers at the edges, with what each does there."""
    found: dict[str, str] = {}
    for node in graph:
        role = roles.get(node.name or "")
        if is_linear(node) and _is_spread(node):
            found[node.name or ""] = "it makes an embedding of a whole sample"
        elif role in (Role.CONVOLUTION, Role.LINEAR):
            reason = _reason(node)
            if reason is not None:
                found[node.name or ""] = reason
    return found


def _reason(node: ir.Node) -> str | None:
    if _reads_input(node):
        return "it reads an input of the model"
    if _makes_output(node):
        return "it makes an output of the model"
    if _is_shortcut(node):
        return "it is the shortcut of a residual block"
    if _makes_image(node):
        return "it turns tokens into an image"
    return None


def _reads_input(node: ir.Node) -> bool:
    """Whether nothing but moves and arithmetic with constants is between an input of the model and a node."""
    value = node.inputs[0]
    while value is not None and not value.is_graph_input():
        maker = value.producer()
        if maker is None or not is_operator(maker, *MOVES, *POINTWISE):
            return False
        inputs = data_inputs(maker)
        if len(inputs) != 1:
            return False
        value = inputs[0]
    return value is not None


def _makes_output(node: ir.Node) -> bool:
    """Whether an output of the model is what a node makes, moved or computed with constants."""
    value = node.outputs[0]
    for _ in range(MAX_NODES):
        if value.is_graph_output():
            return True
        reader = only_consumer(value)
        if reader is None or not is_operator(reader, *MOVES, *POINTWISE) or len(data_inputs(reader)) != 1:
            return False
        value = reader.outputs[0]
    return False


def _is_shortcut(node: ir.Node) -> bool:
    """Whether a 1x1 convolution is added to what other layers make of the same value."""
    total = _sum_behind(node)
    if total is None or not _is_pixelwise(node):
        return False
    own = _through_constants(node.outputs[0])
    other = next((value for value in total.inputs if value is not None and value is not own), None)
    return other is not None and _descends(other, node.inputs[0])


def _is_pixelwise(node: ir.Node) -> bool:
    weight = node.inputs[1] if is_operator(node, "Conv") else None
    shape = weight.shape if weight is not None else None
    return shape is not None and shape.is_static() and all(size == 1 for size in shape.numpy()[2:])


def _through_constants(value: ir.Value) -> ir.Value:
    """What is left of a value behind arithmetic with constants, such as a bias."""
    while (reader := only_consumer(value)) is not None:
        if not is_operator(reader, "Add", "Mul", "Div") or len(data_inputs(reader)) != 1:
            break
        value = reader.outputs[0]
    return value


def _sum_behind(node: ir.Node) -> ir.Node | None:
    """The sum with another activation that alone reads what a node makes, after biases and scales."""
    reader = only_consumer(_through_constants(node.outputs[0]))
    return reader if reader is not None and is_operator(reader, "Add") else None


def _descends(value: ir.Value, ancestor: ir.Value | None) -> bool:
    """Whether a value is made of another one, a block of nodes earlier at most."""
    pending, seen = [value], set[ir.Value]()
    while pending and len(seen) < MAX_NODES:
        current = pending.pop()
        if current is ancestor:
            return True
        maker = current.producer()
        if current not in seen and maker is not None:
            seen.add(current)
            pending.extend(item for item in maker.inputs if item is not None and constant_of(item) is None)
    return False


def _is_spread(node: ir.Node) -> bool:
    """Whether a product of rows is used for all pixels or tokens of the sample that a row stands for."""
    pending, seen = list(node.outputs), set[ir.Value]()
    if _rank(node.outputs[0]) != 2:
        return False
    while pending and len(seen) < MAX_NODES:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for reader, _ in value.uses():
            made = reader.outputs[0]
            if is_operator(reader, "Unsqueeze", "Reshape") and (_rank(made) or 2) > 2:
                if is_operator(reader, "Unsqueeze") or _has_ones(made):
                    return True
            elif is_operator(reader, *POINTWISE, *MOVES) or is_linear(reader):
                pending.extend(out for out in reader.outputs if _rank(out) == 2)
    return False


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def _has_ones(value: ir.Value) -> bool:
    return value.shape is not None and any(size == 1 for size in value.shape.dims[1:])


def _makes_image(node: ir.Node) -> bool:
    """Whether what a layer makes of tokens is added to an image."""
    if is_operator(node, "Conv"):
        return _is_pixelwise(node) and _sum_behind(node) is not None and _was_tokens(node.inputs[0])
    value, is_image = _through_constants(node.outputs[0]), False
    while (reader := only_consumer(value)) is not None and is_operator(reader, *MOVES):
        value = reader.outputs[0]
        is_image = is_image or _rank(value) == IMAGE_RANK
    total = only_consumer(_through_constants(value))
    return is_image and total is not None and is_operator(total, "Add") and len(data_inputs(total)) == 2


def _was_tokens(value: ir.Value | None) -> bool:
    """Whether an image is tokens that were only moved."""
    while value is not None and _rank(value) != IMAGE_RANK - 1:
        maker = value.producer()
        if maker is None or not is_operator(maker, *MOVES):
            return False
        value = maker.inputs[0]
    return value is not None
