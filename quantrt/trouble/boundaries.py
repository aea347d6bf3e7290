# SPDX-License-Identifier: Apache-2.0
"""Where codes end: convolutions that read codes and write floats, and float layers between 8-bit ones.

Two static counts that predict how much of int8's speed is left (NVIDIA's ResNet-18 on an A100, from 12 and 13
to 1 and 1: 0.88 to 0.50 ms).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.quantize.qdq.switches import MOVES
from quantrt.trouble.finding import TROUBLE, Finding
from quantrt.trouble.scene import Scene

__all__ = ["find_float_outputs", "find_reformats"]

FUSED = (
    "Relu", "Clip", "LeakyRelu", "PRelu", "HardSwish", "HardSigmoid", "Sigmoid", "Tanh", "Gelu", "Erf", "Elu",
    "Softplus", "Mul", "Add", "Sub", "Div", "Pow", "Sqrt", "Mish", "Swish",
)  # fmt: skip
"""What kernels compute behind a product."""

NEEDS_FLOATS = (
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "Softmax",
    "LogSoftmax", "ReduceMean", "ReduceSum", "GlobalAveragePool", "ReduceL2", "Attention", "Exp", "MatMul",
)  # fmt: skip
"""Operators that make floats of codes for a good reason."""

LAYERS = ("Conv", "ConvTranspose", "MatMul", "Gemm")

LEAST_COUNT = 2
LEAST_RATIO = 0.2
"""Of the 8-bit layers. Every network ends in one that writes floats, and has a Pad or two."""

MAX_STEPS = 8


def find_float_outputs(scene: Scene) -> Iterator[Finding]:
    """8-bit convolutions whose result is nowhere read as codes."""
    convs = [node for node in scene.nodes if is_operator(node, "Conv") and node.name in scene.int8_nodes]
    floats = [node.name or "" for node in convs if not _is_read_as_codes(scene, node)]
    if len(floats) < LEAST_COUNT or len(floats) < LEAST_RATIO * len(convs):
        return
    yield Finding(
        "codes in, floats out",
        TROUBLE,
        tuple(floats),
        (),
        f"{len(floats)} of {len(convs)} 8-bit convolutions",
        "they write 2 to 4 times the bytes, and what reads them runs in floats: little is gained",
        "`quantrt check --device GPU` or `quantrt inspect --layers` says why what reads them is float",
    )


def _is_read_as_codes(scene: Scene, conv: ir.Node) -> bool:
    """Whether what kernels make of a convolution's result is codes somewhere."""
    frontier, seen = [conv.outputs[0]], set[str]()
    for _ in range(MAX_STEPS):
        following: list[ir.Value] = []
        for value in frontier:
            if value.name in scene.placement.values:
                return True
            for use in value.uses():
                node = use.node
                if (node.name or "", use.idx) in scene.placement.uses:
                    return True
                if is_operator(node, *FUSED, *MOVES) and (node.name or "") not in seen:
                    seen.add(node.name or "")
                    following += node.outputs
        frontier = following
    return False


def find_reformats(scene: Scene) -> Iterator[Finding]:
    """Float layers that read what an 8-bit layer makes and whose result is rounded to codes again."""
    islands = [
        node for node in scene.nodes if _is_island(scene, node) and not is_operator(node, *NEEDS_FLOATS)
    ]
    layers = [node for node in scene.nodes if node.name in scene.int8_nodes and is_operator(node, *LAYERS)]
    if len(islands) < LEAST_COUNT or len(islands) < LEAST_RATIO * len(layers):
        return
    yield Finding(
        "reformats",
        TROUBLE,
        tuple(node.name or "" for node in islands),
        (),
        f"{len(islands)} float layers between {len(layers)} 8-bit ones: {_reason(scene, islands)}",
        "codes are made floats and codes again around each of them",
        "exclude less, or more: the 8-bit layers on both sides of it too",
    )


def _is_island(scene: Scene, node: ir.Node) -> bool:
    if node.name in scene.int8_nodes or is_operator(node, *FUSED, *MOVES):
        return False
    makers = [value.producer() for value in node.inputs if value is not None]
    reads = any(maker is not None and _source(maker).name in scene.int8_nodes for maker in makers)
    return reads and _is_read_as_codes(scene, node)


def _source(node: ir.Node) -> ir.Node:
    """The layer before what its kernel computes behind it."""
    for _ in range(MAX_STEPS):
        if not is_operator(node, *FUSED, *MOVES) or not node.inputs or node.inputs[0] is None:
            return node
        maker = node.inputs[0].producer()
        if maker is None:
            return node
        node = maker
    return node


def _reason(scene: Scene, nodes: list[ir.Node]) -> str:
    """Why most of them are float."""
    reasons = {row.node: row.reason for row in scene.placement.decisions}
    found = [reasons.get(node.name or "", "") for node in nodes]
    return max(dict.fromkeys(found), key=found.count)
