# SPDX-License-Identifier: Apache-2.0
"""Which nodes of the model a library's layer computes, and why they have their precision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from quantrt.dtypes import CODE_PRECISIONS
from quantrt.plan.plan import Layer, Plan

__all__ = ["OWN_CODES", "PRODUCTS", "PlanNodes", "default_shapes", "nodes_by_layer"]

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators that decide a layer's precision where it computes several nodes."""

OWN_CODES = "on codes, by the model's own QuantizeLinear and DequantizeLinear nodes"
"""Why a layer is in codes in an engine that was given a quantized model and runs it as it is."""

_ADDED = ("Without", "Dequantization", "token_", "part_")
"""How the parts begin that are put behind a node's name: "/WithoutBiases", "_token_4"; "/part_1" of several
nodes that one was made into (quantrt.plan.openvino.heads)."""


@dataclass(frozen=True)
class PlanNodes:
    """The nodes of a plan, by name."""

    layers: Mapping[str, Layer]

    @classmethod
    def of(cls, plan: Plan) -> PlanNodes:
        """The nodes of this plan."""
        return cls({layer.name: layer for layer in plan.layers})

    def named(self, name: str) -> str | None:
        """The node that a library's name comes from: itself, or without what libraries put behind it."""
        while name not in self.layers:
            cut = max(name.rfind("/"), name.rfind("_token_"))
            if cut <= 0 or not name[cut:].lstrip("/_").startswith(_ADDED):
                return None
            name = name[:cut]
        return name

    def sources(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Nodes of the user's file, each once."""
        found = (source for name in nodes for source in self.layers[name].sources or (name,))
        return tuple(dict.fromkeys(found))

    def reason(self, nodes: Sequence[str], computes_in: str) -> str:
        """Why a layer of these nodes has its precision; empty where none of them says so."""
        layers = [self.layers[name] for name in nodes]
        main = next((layer for layer in layers if layer.op_type in PRODUCTS), layers[0] if layers else None)
        if main is None:
            return ""
        is_on_codes = computes_in in CODE_PRECISIONS and main.precision not in ("", *CODE_PRECISIONS)
        if is_on_codes and main.op_type in PRODUCTS:
            return OWN_CODES
        if main.precision in CODE_PRECISIONS and computes_in not in (main.precision, ""):
            return f"quantized in the graph, computed in {computes_in} by the library ({main.reason})"
        return main.reason


def nodes_by_layer(
    layers: Sequence[str],
    told: Mapping[str, str],
    makers: dict[str, list[str]],
    plan: PlanNodes,
    *,
    products: Collection[str] = (),
) -> dict[str, tuple[str, ...]]:
    """The nodes that each of `layers` computes, in the model's order.

    An operation that no layer names was fused without a word into the layer that makes the first of what it
    reads; a product into the layer that reads it, such as that of its bias. A node that several products were
    made of is computed by all of their layers.

    Args:
        told: layer by operation of the engine's graph, as far as the library tells.
        makers: for every operation of the engine's graph in topological order, those that make what it
            reads, constants left out.
        products: the operations that multiply.
    """
    owners = dict(told)
    for name, reader in _read_by(makers, told).items():
        if name in products:
            owners.setdefault(name, reader)
    by_node: dict[str, str] = {}
    several: dict[str, set[str]] = {}
    for name, teller in told.items():
        if (told_node := plan.named(name)) is not None:
            by_node[told_node] = teller
            if name in products:
                several.setdefault(told_node, set()).add(teller)
    for name, sources in makers.items():
        node = plan.named(name)
        layer = owners.get(name) or (by_node.get(node) if node is not None else None)
        layer = layer or next((owners[maker] for maker in sources if maker in owners), None)
        if layer is not None:
            owners[name] = layer
    found: dict[str, set[str]] = {layer: set() for layer in layers}
    for name, layer in owners.items():
        node = plan.named(name)
        if node is not None and (by_node.get(node, layer) == layer or layer in several.get(node, ())):
            found[layer].add(node)
    rank = {name: number for number, name in enumerate(plan.layers)}
    return {layer: tuple(sorted(nodes, key=rank.__getitem__)) for layer, nodes in found.items()}


def _read_by(makers: dict[str, list[str]], told: Mapping[str, str]) -> dict[str, str]:
    """The layer that reads what an operation makes, directly or through operations without a layer."""
    found: dict[str, str] = {}
    for name in reversed(makers):
        layer = told.get(name) or found.get(name)
        if layer is not None:
            for maker in makers[name]:
                if maker not in told:
                    found.setdefault(maker, layer)
    return found


def default_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs whose only free size is their first, with 1 for it."""
    found = {}
    for spec in plan.inputs:
        sizes = spec.shape
        if sizes is not None and all(isinstance(size, int) for size in sizes[1:]):
            found[spec.name] = tuple(size if isinstance(size, int) else 1 for size in sizes)
    return found
