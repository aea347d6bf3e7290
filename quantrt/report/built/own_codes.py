# SPDX-License-Identifier: Apache-2.0
"""What a library of a CPU computes in codes of a model that came quantized, and runs as it is."""

from __future__ import annotations

from collections.abc import Iterator

from quantrt.ir.edit import constant_of, is_operator
from quantrt.quantize.placement.obstacle import is_quantized
from quantrt.report.built.facts import BuildFacts
from quantrt.report.engine_layers.nodes import PRODUCTS

__all__ = ["own_code_nodes", "own_code_notes"]

PRODUCTS_OF_ALL = (*PRODUCTS, "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")


def own_code_nodes(facts: BuildFacts) -> frozenset[str]:
    """Names of the nodes, as the library told when the build timed its layers; none of an engine for a GPU.

    A DequantizeLinear of a weight is among them where a node that reads it is: libraries fold it.
    """
    graph = facts.model.graph.graph
    if facts.winner.spec.library == "cuda" or not is_quantized(graph):
        return frozenset()
    nodes = list(graph)
    told = facts.layer_times.get(facts.choice.winner, {}).get("in_codes", ())
    found = {nodes[number] for number in told}
    folded = {
        node
        for node in nodes
        if is_operator(node, "DequantizeLinear")
        and constant_of(node.inputs[0]) is not None
        and any(use.node in found for use in node.outputs[0].uses())
    }
    return frozenset(node.name or "" for node in found | folded)


def own_code_notes(facts: BuildFacts) -> Iterator[str]:
    """How many products of such a model the library computes in codes, and how many in floats."""
    products = [node for node in facts.model.graph.graph if is_operator(node, *PRODUCTS_OF_ALL)]
    winner = facts.winner
    if not products or winner.fitted is not None or winner.spec.library == "cuda":
        return
    if facts.choice.winner in facts.layer_times and is_quantized(facts.model.graph.graph):
        codes = own_code_nodes(facts)
        count = f"{sum(node.name in codes for node in products)} of its {len(products)} products"
        told = f"{winner.spec.library} computes {count} in codes"
        yield f"the model is quantized already and runs as it is: {told}"
