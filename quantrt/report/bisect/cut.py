# SPDX-License-Identifier: Apache-2.0
"""Some nodes of a graph as a model of their own, cut where values have a name in another graph too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from quantrt.errors import ModelError
from quantrt.ir.edit import constant_of
from quantrt.operators.extract import extract_nodes, read_values

__all__ = ["Cut", "ancestors", "cut", "made_by", "with_inputs"]


@dataclass(frozen=True)
class Cut:
    """A part of a graph.

    Attributes:
        model: it.
        nodes: names of its nodes, in the graph's order.
        inputs, outputs: what it takes and returns.
    """

    model: ir.Model
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def cut(
    graph: ir.Model,
    keep: Iterable[str],
    values: Mapping[str, np.ndarray],
    outputs: Sequence[str] | None = None,
) -> Cut | None:
    """The nodes called `keep`, and those before them up to values that are known.

    Args:
        values: where the graph may be cut, with what is there.
        outputs: what to return; None: what the rest of the graph reads, or the graph returns.

    Returns:
        None where nothing would be returned.
    """
    makers = made_by(graph)
    wanted = set(keep)
    pending = [node for node in graph.graph if node.name in wanted]
    inputs: dict[str, None] = {}
    while pending:
        for value in read_values(pending.pop()):
            name, maker = value.name or "", makers.get(value.name or "")
            if maker is not None and maker.name in wanted:
                continue
            if name in values:
                inputs[name] = None
            elif maker is not None:
                wanted.add(maker.name or "")
                pending.append(maker)
            elif constant_of(value) is None:
                raise ModelError(f"'{name}' is read, but neither made nor given")
    nodes = [node for node in graph.graph if node.name in wanted]
    returned = tuple(outputs) if outputs is not None else tuple(_boundary(graph, nodes))
    if not returned:
        return None
    names = tuple(node.name or "" for node in nodes)
    model = extract_nodes(graph, names, tuple(inputs), returned)
    return Cut(with_inputs(model, inputs, values), names, tuple(inputs), returned)


def with_inputs(model: ir.Model, names: Iterable[str], values: Mapping[str, np.ndarray]) -> ir.Model:
    """The model, every input with the element type and the shape of what it is given.

    A first size of 1 in all of them counts samples, and stays free.
    """
    present = {value.name: value for value in model.graph.inputs}
    arrays = {name: values[name] for name in names}
    is_batched = bool(arrays) and all(x.ndim and len(x) == 1 for x in arrays.values())
    for name, array in arrays.items():
        value = present.get(name)
        if value is None:
            value = ir.Value(name=name)
            model.graph.inputs.append(value)
        value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        value.shape = ir.Shape(["batch", *array.shape[1:]] if is_batched else array.shape)
    return model


def ancestors(graph: ir.Model, names: Collection[str], stop: Collection[str] = ()) -> list[str]:
    """Names of the nodes that make these values, in the graph's order.

    Args:
        stop: values that are given: what makes them is not looked at.
    """
    makers = made_by(graph)
    found: set[str] = set()
    pending = [makers[name] for name in names if name in makers and name not in stop]
    while pending:
        node = pending.pop()
        if (node.name or "") in found:
            continue
        found.add(node.name or "")
        read = (value.name or "" for value in read_values(node))
        pending += [makers[name] for name in read if name in makers and name not in stop]
    return [node.name or "" for node in graph.graph if (node.name or "") in found]


def made_by(graph: ir.Model) -> dict[str, ir.Node]:
    """Every value of the main graph that a node makes -> that node."""
    return {value.name: node for node in graph.graph for value in node.outputs if value.name}


def _boundary(graph: ir.Model, nodes: Sequence[ir.Node]) -> Iterable[str]:
    """Values of these nodes that others read, or that the graph returns."""
    own = {node.name for node in nodes}
    read = {
        value.name
        for node in graph.graph
        if node.name not in own
        for value in read_values(node)
        if value.name
    }
    returned = {value.name for value in graph.graph.outputs}
    for node in nodes:
        yield from (value.name for value in node.outputs if value.name and value.name in read | returned)
