# SPDX-License-Identifier: Apache-2.0
"""The regions of a Q/DQ graph that make codes of codes, and what an engine shows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from quantrt.ir.edit import constant_of, is_operator

__all__ = ["CodeRegion", "Skipped", "find_regions"]

PRODUCTS = ("Conv", "Gemm", "MatMul")

COMPUTED = (
    *PRODUCTS, "Add", "AveragePool", "Clip", "Concat", "DequantizeLinear", "Div", "Flatten", "Gather",
    "GlobalAveragePool", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "MaxPool", "Mul", "Pad",
    "ReduceMean", "Relu", "Reshape", "Resize", "Sigmoid", "Slice", "Split", "Squeeze", "Sub", "Transpose",
    "Unsqueeze",
)  # fmt: skip
"""Operators whose results are known to well within a step of a grid from exact inputs."""

MOST_NODES = 48
"""Of a region: what is larger is no kernel's work."""


@dataclass(frozen=True)
class CodeRegion:
    """Nodes between codes.

    Attributes:
        name: of the product, or of the node before the codes.
        op_type: its operator.
        nodes: in order, without the QuantizeLinear.
        quantize: what makes the codes.
        output: what the engine calls the codes.
        codes: values of codes that are read -> what the engine calls them.
        floats: values of floats that are read -> what the engine calls them.
    """

    name: str
    op_type: str
    nodes: tuple[ir.Node, ...]
    quantize: ir.Node
    output: str
    codes: dict[ir.Value, str]
    floats: dict[ir.Value, str]


@dataclass(frozen=True)
class Skipped:
    """Codes that are not compared, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class _Found:
    nodes: set[ir.Node]
    codes: dict[ir.Value, str]
    floats: dict[ir.Value, str]


def find_regions(
    graph: ir.Graph,
    code_name: Callable[[ir.Node], str | None],
    float_name: Callable[[ir.Value], str | None],
) -> Iterator[CodeRegion | Skipped]:
    """Every QuantizeLinear of an activation with the nodes before it, back to codes or shown floats.

    Args:
        code_name: what the engine calls the codes of a QuantizeLinear; None where it does not show them.
        float_name: what it calls a float value; None likewise.
    """
    order = {node: index for index, node in enumerate(graph)}
    for node in graph:
        if not is_operator(node, "QuantizeLinear") or constant_of(node.inputs[0]) is not None:
            continue
        name = node.name or ""
        output = code_name(node)
        if output is None:
            yield Skipped(name, "the engine does not show these codes")
            continue
        found = _Found(set(), {}, {})
        reason = _walk(node.inputs[0], found, code_name, float_name)
        if reason is None and not found.codes:
            reason = "made of floats alone"
        if reason is not None:
            yield Skipped(name, reason)
            continue
        nodes = tuple(sorted(found.nodes, key=order.__getitem__))
        main = next((each for each in reversed(nodes) if is_operator(each, *PRODUCTS)), None)
        chosen = main or next((each for each in nodes if not is_operator(each, "DequantizeLinear")), node)
        yield CodeRegion(
            chosen.name or "", chosen.op_type, nodes, node, output, dict(found.codes), dict(found.floats)
        )


def _walk(
    value: ir.Value | None,
    found: _Found,
    code_name: Callable[[ir.Node], str | None],
    float_name: Callable[[ir.Value], str | None],
) -> str | None:
    """Collect what a value is made of; why that cannot be computed, or None."""
    pending, is_first = [value], True
    while pending:
        value = pending.pop()
        maker = None if value is None else value.producer()
        if value is None or constant_of(value) is not None or (maker is not None and maker in found.nodes):
            continue
        shown = None if is_first and maker is not None else float_name(value)
        is_first = False
        if shown is not None:
            found.floats[value] = shown
            continue
        if maker is None:
            return "reads a value that the engine does not show"
        source = maker.inputs[0].producer() if maker.inputs and maker.inputs[0] is not None else None
        if is_operator(maker, "DequantizeLinear") and is_operator(source, "QuantizeLinear"):
            if source is not None and constant_of(source.inputs[0]) is None:
                name = code_name(source)
                if name is None:
                    return "reads codes that the engine does not show"
                found.codes[source.outputs[0]] = name
                found.nodes.add(maker)
                continue
        elif not is_operator(maker, *COMPUTED) and not _is_constant_pair(maker):
            return f"{maker.op_type} computes in floats"
        found.nodes.add(maker)
        if len(found.nodes) > MOST_NODES:
            return f"more than {MOST_NODES} nodes lie between codes"
        pending += maker.inputs
    return None


def _is_constant_pair(node: ir.Node) -> bool:
    return is_operator(node, "QuantizeLinear") and constant_of(node.inputs[0]) is not None
