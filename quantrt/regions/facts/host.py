# SPDX-License-Identifier: Apache-2.0
"""Which nodes compute shapes, and which read values that lie on the device."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from quantrt.regions.facts.facts import Facts, has_body, is_constant
from quantrt.regions.facts.parameters import VALUE_READERS, parameters_of

__all__ = ["find_host", "host_nodes", "reads_device_values"]

HOST_OPERATORS = (
    "Abs",
    "Add",
    "And",
    "Cast",
    "Ceil",
    "Concat",
    "Div",
    "Equal",
    "Flatten",
    "Floor",
    "Gather",
    "Greater",
    "GreaterOrEqual",
    "Identity",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "Pow",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Reshape",
    "ScatterElements",
    "ScatterND",
    "Sign",
    "Slice",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Transpose",
    "Unsqueeze",
    "Where",
    "Xor",
)
"""Operators that are a few instructions where their inputs are sizes of tensors."""

GROWING_OPERATORS = ("ConstantOfShape", "Expand", "OneHot", "Range", "Tile", "Trilu")
"""The same, for shapes alone: elsewhere they make tensors as large as an activation."""


def find_host(facts: Facts) -> Facts:
    """The same facts with `host` filled in."""
    possible = _possible(facts, set(range(len(facts.nodes))))
    wanted = _wanted(facts, possible)
    kept = _possible(facts, wanted)
    names = {value.name for position in kept for value in facts.nodes[position].outputs if value.name}
    return replace(facts, host=frozenset(names))


def host_nodes(facts: Facts) -> list[int]:
    """Positions of the nodes that make host values."""
    return sorted({facts.makers[name] for name in facts.host})


def reads_device_values(node: ir.Node, facts: Facts) -> bool:
    """Whether the shape of a node's result, or the host's course, depends on values on the device."""
    if has_body(node) or node.op_type in VALUE_READERS:
        return True
    return any(facts.is_activation(value) for value in parameters_of(node))


def _possible(facts: Facts, wanted: set[int]) -> set[int]:
    """Nodes that can run on the host: sizes of tensors, and what is computed from them and constants.

    Those in `wanted` may also be of GROWING_OPERATORS and read long constants.
    """
    found: set[int] = set()
    names: set[str] = set()
    for position, node in enumerate(facts.nodes):
        if _is_seed(node) or (
            (_is(node, HOST_OPERATORS) or (position in wanted and _is(node, GROWING_OPERATORS)))
            and not has_body(node)
            and any(value is not None and value.name in names for value in node.inputs)
            and all(value is None or is_constant(value) or value.name in names for value in node.inputs)
            and all(_is_small(value, wanted, position) for value in node.inputs if is_constant(value))
        ):
            found.add(position)
            names.update(value.name for value in node.outputs if value.name)
    return found


def _wanted(facts: Facts, possible: set[int]) -> set[int]:
    """Those of the possible nodes whose result decides a shape, directly or through others of them."""
    wanted: set[int] = set()
    for position in range(len(facts.nodes) - 1, -1, -1):
        node = facts.nodes[position]
        is_through = position in wanted and not _is_seed(node)  # a Shape reads no values
        for value in node.inputs if is_through else parameters_of(node):
            maker = facts.maker_of(value)
            if maker is not None and maker in possible:
                wanted.add(maker)
    return wanted


def _is_seed(node: ir.Node) -> bool:
    return _is(node, ("Shape", "Size"))


def _is(node: ir.Node, operators: tuple[str, ...]) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in operators


_MAX_ELEMENTS = 64
"""Of a constant that takes part: a shape has a handful; a table of positions is indexed on the device."""


def _is_small(value: ir.Value | None, wanted: set[int], position: int) -> bool:
    if value is None or value.const_value is None:
        return False
    return position in wanted or value.const_value.size <= _MAX_ELEMENTS
