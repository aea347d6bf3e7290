# SPDX-License-Identifier: Apache-2.0
"""The few edits that graph passes are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.same_values import inherit_names
from quantrt.ir.sources import add_sources, sources_of

__all__ = [
    "absorb",
    "add_constant",
    "all_names",
    "constant_of",
    "float_attribute",
    "free_name",
    "int_attribute",
    "is_operator",
    "number_of",
    "only_consumer",
    "order_of",
    "prepend",
    "register_constant",
    "remove_constants",
    "set_constant_input",
    "take_name",
    "take_place",
    "taken_names",
]


def is_operator(node: ir.Node | None, *op_types: str) -> bool:
    """Whether `node` is one of the standard operators `op_types`."""
    return node is not None and node.domain in ("", "ai.onnx") and node.op_type in op_types


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The array of an initializer that no caller can override; None for any other value and for text."""
    if value is None or not value.is_initializer() or value.is_graph_input() or value.const_value is None:
        return None
    if value.const_value.dtype == ir.DataType.STRING:
        return None
    return value.const_value.numpy()


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute; `default` when it is absent or no plain integer."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.INT:
        return default
    return attribute.as_int()


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """A float attribute; `default` when it is absent or no plain float."""
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.FLOAT:
        return default
    return attribute.as_float()


def number_of(value: ir.Value | None) -> float | None:
    """A constant of one element; None for any other value."""
    array = constant_of(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def order_of(transpose: ir.Node) -> tuple[int, ...] | None:
    """The order of axes that a node gives as its `perm`; None where it gives none."""
    perm = transpose.attributes.get("perm")
    return None if perm is None or perm.is_ref() else tuple(perm.as_ints())


def only_consumer(value: ir.Value) -> ir.Node | None:
    """The one node that reads `value`, once, when nothing else does: no other node, no graph output."""
    uses = tuple(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def free_name(graph: ir.Model, name: str) -> str:
    """`name`, with underscores where a node or a value of any graph has it."""
    return take_name(name, all_names(graph))


def all_names(graph: ir.Model) -> set[str]:
    """What a new node, and what it makes, cannot be called: names of nodes and values of all graphs."""
    taken = taken_names(graph) | {node.name or "" for node in graph.graph.all_nodes()}
    for part in graph.graphs():
        taken.update(value.name or "" for value in part.inputs)
    return taken


def take_name(name: str, taken: set[str]) -> str:
    """`name`, with underscores where it is one of `taken`, to which it is added."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def prepend(graph: ir.Model, nodes: Sequence[ir.Node]) -> None:
    """Put nodes before all others of the main graph, which may have none."""
    first = next(iter(graph.graph), None)
    if first is None:
        graph.graph.extend(nodes)
    else:
        graph.graph.insert_before(first, nodes)


def taken_names(graph: ir.Model) -> set[str]:
    """What a new initializer of the main graph cannot be called."""
    taken = {value.name or "" for node in graph.graph.all_nodes() for value in node.outputs}
    taken.update(value.name or "" for value in graph.graph.inputs)
    for part in graph.graphs():
        taken.update(part.initializers)
    return taken


def add_constant(graph: ir.Model, name: str, array: np.ndarray, taken: set[str] | None = None) -> ir.Value:
    """A new initializer of the main graph; a number is added to `name` where it is taken.

    Args:
        taken: `taken_names` from before, with all names given since; the new one is added. Whoever adds a
            constant per layer looks for them once, not in the whole graph each time.
    """
    taken = taken_names(graph) if taken is None else taken
    unique, number = name, 0
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return register_constant(graph, unique, ir.Tensor(np.ascontiguousarray(array).reshape(array.shape)))


def register_constant(graph: ir.Model, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """A new initializer of the main graph under a name that is free."""
    tensor.name = name
    value = ir.Value(
        name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.graph.register_initializer(value)
    return value


def remove_constants(graph: ir.Model, values: Iterable[ir.Value | None]) -> None:
    """Remove those of these initializers of the main graph that nothing reads any more."""
    for value in values:
        name = "" if value is None else value.name or ""
        if value is not None and name in graph.graph.initializers and not value.uses():
            if not value.is_graph_output():
                del graph.graph.initializers[name]


def set_constant_input(graph: ir.Model, node: ir.Node, index: int, array: np.ndarray, name: str) -> None:
    """Give `node` the constant `array` as input `index`.

    A constant that only this node reads keeps its name; otherwise a new one is made, called `name`.
    """
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    old = node.inputs[index]
    if old is not None and constant_of(old) is not None and only_consumer(old) is node:
        name = old.name or name
        node.replace_input_with(index, None)
        del graph.graph.initializers[name]
    node.replace_input_with(index, add_constant(graph, name, array))


def take_place(graph: ir.Model, node: ir.Node, added: Sequence[ir.Node], made: ir.Value) -> None:
    """Put nodes where one was; what they make takes over its name, type, readers and place as an output."""
    result = node.outputs[0]
    name, made.shape, made.type = result.name, result.shape, result.type
    graph.graph.insert_before(node, list(added))
    result.replace_all_uses_with(made, replace_graph_outputs=True)
    graph.graph.remove(node, safe=True)
    result.name, made.name = None, name


def absorb(node: ir.Node, follower: ir.Node) -> None:
    """Remove `follower`, whose first input `node` makes; that value takes over its output's place and name.

    `follower` must be the only reader of the value and have one output in use.
    """
    mine, theirs = node.outputs[0], follower.outputs[0]
    name = theirs.name
    inherit_names(mine, theirs)
    theirs.replace_all_uses_with(mine, replace_graph_outputs=True)
    mine.shape, mine.type = theirs.shape or mine.shape, theirs.type or mine.type
    add_sources(node, sources_of(follower))
    if follower.graph is not None:
        follower.graph.remove(follower, safe=True)
    theirs.name = None
    mine.name = name
