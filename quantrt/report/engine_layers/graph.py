# SPDX-License-Identifier: Apache-2.0
"""How the layers of an engine hang together, and which layers of two engines stand for the same nodes."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from quantrt.report.engine_layers.layer import EngineLayer

__all__ = ["Aligned", "LayerEdge", "align_layers", "align_names", "layer_edges"]


_KIND = "\n"
"""Between the name of a layer without nodes and its kind: no node is called so."""


@dataclass(frozen=True)
class LayerEdge:
    """One tensor from the layer that makes it to one that reads it.

    Attributes:
        producer, consumer: places in the sequence of layers.
        dtype: numpy's name of the element type that travels.
    """

    producer: int
    consumer: int
    tensor: str
    dtype: str


@dataclass(frozen=True)
class Aligned:
    """Layers of two engines that compute the same nodes; one side may be empty.

    Attributes:
        names: of all these nodes.
        left, right: places in the sequences of layers of the two engines.
    """

    names: tuple[str, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]


def layer_edges(layers: Sequence[EngineLayer]) -> tuple[LayerEdge, ...]:
    """Every use of a layer's output by a later layer, once for each pair of layers and tensor."""
    maker: dict[str, int] = {}
    edges: dict[tuple[int, int, str], LayerEdge] = {}
    for place, layer in enumerate(layers):
        for form in layer.inputs:
            if form.name in maker:
                made = maker[form.name]
                edges[made, place, form.name] = LayerEdge(made, place, form.name, form.dtype)
        maker.update({form.name: place for form in layer.outputs})
    return tuple(edges.values())


def align_layers(left: Sequence[EngineLayer], right: Sequence[EngineLayer]) -> tuple[Aligned, ...]:
    """As `align_names`, by the nodes of the user's file; layers of none by names that both have."""
    shared = {_own_name(layer) for layer in left} & {_own_name(layer) for layer in right}
    found = align_names(*([_names(layer, shared) for layer in side] for side in (left, right)))
    return tuple(replace(row, names=tuple(name.partition(_KIND)[0] for name in row.names)) for row in found)


def _own_name(layer: EngineLayer) -> str:
    """The name of a layer that computes no node; none where the library only numbers it."""
    is_named = not layer.sources and layer.name.partition("#")[0] != layer.kind
    return layer.name if is_named else ""


def _names(layer: EngineLayer, shared: Set[str]) -> Sequence[str]:
    name = _own_name(layer)
    return (f"{name}{_KIND}{layer.kind}",) if name and name in shared else layer.sources


def align_names(left: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> tuple[Aligned, ...]:
    """The finest grouping in which layers that share a node are together, in the left's order.

    What one engine fuses and the other does not can be compared only as such a group.

    Args:
        left, right: of every layer of an engine, the nodes that it computes. One of none stands alone.
    """
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root[name] != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    for nodes in (*left, *right):
        for name in nodes:
            root.setdefault(name, name)
            root[find(name)] = find(nodes[0])
    groups: dict[str, tuple[list[int], list[int]]] = {}
    for side, layers in enumerate((left, right)):
        for place, nodes in enumerate(layers):
            key = find(nodes[0]) if nodes else f"\n{side} {place}"
            groups.setdefault(key, ([], []))[side].append(place)
    names: dict[str, list[str]] = {}
    for name in root:
        names.setdefault(find(name), []).append(name)
    return tuple(
        Aligned(tuple(names.get(key, ())), tuple(places[0]), tuple(places[1]))
        for key, places in sorted(groups.items(), key=lambda item: _first(item[1], len(left)))
    )


def _first(places: tuple[list[int], list[int]], left_count: int) -> tuple[int, int]:
    """By the left's order; what only the right has comes after, in its own order."""
    left, right = places
    return (left[0], 0) if left else (left_count, right[0])
