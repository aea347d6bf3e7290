# SPDX-License-Identifier: Apache-2.0
"""What part every convolution and product plays in a network, told by the nodes around it and by no name.

    feed-forward   the products before and after an activation, the depth between them being the widest
    projection     products that make Q, K and V of softmax attention, through norms, rotations and moves
    attention      Q K^T and P V themselves
    linear         any other product with a constant weight

Exporters name nodes as they like, or number them; what is around a product is the same in all of their files.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator
from quantrt.quantize.patterns.attention import attention_products

__all__ = ["ACTIVATIONS", "ARITHMETIC", "MOVES", "Role", "data_inputs", "is_linear", "roles_of"]

MOVES = (
    "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators whose results are elements of their first input; of a Concat, of all."""

ACTIVATIONS = (
    "Celu", "Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu",
    "Selu", "Sigmoid", "Softplus", "Swish", "Tanh", "ThresholdedRelu",
)  # fmt: skip

ARITHMETIC = ("Add", "Cast", "Div", "Mul", "Neg", "Pow", "Sub")
"""With ACTIVATIONS, what GELU, SwiGLU and alike are spelled with."""

NORMS = (
    "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization",
    "RMSNormalization", "SimplifiedLayerNormalization", "ReduceL2", "ReduceMean", "ReduceSum", "Sqrt",
    "Reciprocal", "Max",
)  # fmt: skip
"""What Q and K are normalized with behind their projections, whole or spelled out."""

MAX_NODES = 96
"""Nodes that are walked from one product at most; a rotated and normalized Q takes about 40."""


class Role(Enum):
    """The part of a node that may run in 8 bits."""

    CONVOLUTION = "convolution"
    FEED_FORWARD = "feed-forward product"
    PROJECTION = "projection of attention"
    LINEAR = "linear layer"
    ATTENTION = "product of attention"
    TABLE = "embedding table"


def roles_of(graph: ir.Graph) -> dict[str, Role]:
    """The roles of all nodes that have one, by name."""
    attention = attention_products(graph)
    roles: dict[str, Role] = {}
    for node in graph:
        if is_operator(node, "Conv", "ConvTranspose"):
            roles[node.name or ""] = Role.CONVOLUTION
        elif is_operator(node, "Gather") and constant_of(node.inputs[0]) is not None:
            roles[node.name or ""] = Role.TABLE
        elif node.name in attention or is_operator(node, "Attention"):
            roles[node.name or ""] = Role.ATTENTION
        elif is_linear(node):
            roles[node.name or ""] = Role.LINEAR
    for node in graph:
        if is_linear(node) and (ups := _before_activation(node)):
            roles |= {other.name or "": Role.FEED_FORWARD for other in (node, *ups)}
    for node in graph:
        if roles.get(node.name or "") is Role.ATTENTION:
            for value in node.inputs[:3]:
                roles |= {other.name or "": Role.PROJECTION for other in _Walk().projections(value)}
    return roles


def is_linear(node: ir.Node | None) -> bool:
    """Whether a node multiplies an activation with a constant matrix."""
    return (
        node is not None
        and is_operator(node, "Gemm", "MatMul")
        and constant_of(node.inputs[0]) is None
        and constant_of(node.inputs[1]) is not None
    )


def data_inputs(node: ir.Node) -> list[ir.Value]:
    """The activations that a node computes with: no sizes, no constants."""
    values = list(node.inputs) if is_operator(node, "Concat") else list(node.inputs[:1])
    if is_operator(node, "Where"):
        values = list(node.inputs[1:])
    elif is_operator(node, *ARITHMETIC, "Max"):
        values = list(node.inputs)
    return [value for value in values if value is not None and constant_of(value) is None]


def _before_activation(down: ir.Node) -> tuple[ir.Node, ...]:
    """The products whose results reach `down` through an activation and nothing else; none otherwise.

    They read one value, and what `down` sums over is wider than that value and than what it makes.
    """
    found: dict[ir.Node, None] = {}
    is_bent = False
    for node in _walk_back(down):
        if node is not None and is_linear(node):
            found[node] = None
        elif node is None or not is_operator(node, *MOVES, *ARITHMETIC, *ACTIVATIONS):
            return ()
        is_bent = is_bent or is_operator(node, *ACTIVATIONS)
    depth, width = _sizes(down)
    is_wide = all(_sizes(up)[0] < depth for up in found) and width < depth
    return tuple(found) if is_bent and is_wide and len({up.inputs[0] for up in found}) == 1 else ()


def _walk_back(start: ir.Node) -> Iterator[ir.Node | None]:
    """What makes the first input of a node, up to products; None for an input, or on too long a way."""
    pending, seen = [start.inputs[0]], set[ir.Value]()
    while pending:
        value = pending.pop()
        if value is None or value in seen:
            continue
        seen.add(value)
        node = value.producer()
        yield node if len(seen) <= MAX_NODES else None
        if node is None or len(seen) > MAX_NODES:
            return
        if not is_linear(node):
            pending.extend(data_inputs(node))


def _sizes(product: ir.Node) -> tuple[int, int]:
    """(depth, width) of the weight of a product."""
    weight = constant_of(product.inputs[1])
    if weight is None or weight.ndim < 2:
        return 0, 0
    depth, width = weight.shape[-2:]
    transposed = product.attributes.get("transB")
    return (width, depth) if transposed is not None and transposed.as_int() else (depth, width)


class _Walk:
    """Back from Q, K or V to the products that made it."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, frozenset[ir.Node]] = {}

    def projections(self, value: ir.Value | None) -> frozenset[ir.Node]:
        """The products that a value is made of; none where it is a sum of what different ones made."""
        if value is None or len(self._known) > MAX_NODES:
            return frozenset()
        if value not in self._known:
            self._known[value] = frozenset()
            self._known[value] = self._made_of(value.producer())
        return self._known[value]

    def _made_of(self, node: ir.Node | None) -> frozenset[ir.Node]:
        if node is None or not is_operator(node, *MOVES, *ARITHMETIC, *NORMS, "Clip", "Where"):
            return frozenset([node]) if node is not None and is_linear(node) else frozenset()
        parts = [made for value in data_inputs(node) if (made := self.projections(value))]
        if is_operator(node, "Add", "Sub", "Where") and any(part != parts[0] for part in parts):
            return frozenset()  # a residual sum; a rotation adds two forms of one projection
        return frozenset().union(*parts)
