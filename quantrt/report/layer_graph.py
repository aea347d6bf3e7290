# SPDX-License-Identifier: Apache-2.0
"""How the layers of an engine hang together, and which layers of two engines stand for the same nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quantrt.report.engine_layer import EngineLayer

__all__ = ["Aligned", "LayerEdge", "align_layers", "layer_edges"]


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
    """Layers of two engines that were made of the same nodes of the user's file; one side may be empty.

    Attributes:
        sources: names of all these nodes.
        left, right: places in the sequences of layers of the two engines.
    """

    sources: tuple[str, ...]
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
    """The finest grouping in which layers that share a node of the file are together, in the left's order.

    A layer that names no node of the file stands alone.
    """
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root[name] != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    for layer in (*left, *right):
        for name in layer.sources:
            root.setdefault(name, name)
            root[find(name)] = find(layer.sources[0])
    groups: dict[str, tuple[list[int], list[int]]] = {}
    for side, layers in enumerate((left, right)):
        for place, layer in enumerate(layers):
            key = find(layer.sources[0]) if layer.sources else f"\n{side} {place}"
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
