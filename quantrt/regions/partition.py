# SPDX-License-Identifier: Apache-2.0
"""Group the nodes of a float graph into what one kernel computes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import onnx_ir as ir

from quantrt.errors import InternalError
from quantrt.regions.anchors.anchor import Anchor
from quantrt.regions.anchors.concat import find_concat
from quantrt.regions.anchors.conv import find_conv
from quantrt.regions.anchors.conv_transpose import find_conv_transpose
from quantrt.regions.anchors.gate import find_gate
from quantrt.regions.anchors.gemm import find_gemm
from quantrt.regions.anchors.group_norm import find_group_norm
from quantrt.regions.anchors.pool import find_pool
from quantrt.regions.anchors.resize import find_resize
from quantrt.regions.attention.attention import find_attention
from quantrt.regions.attention.linear_attention import find_linear_attention
from quantrt.regions.clusters import Clusters
from quantrt.regions.epilogue import fuse_epilogue, fuse_gate
from quantrt.regions.facts.facts import Facts, gather_facts
from quantrt.regions.facts.host import find_host, host_nodes, reads_device_values
from quantrt.regions.region import Concat, GroupNorm, Host, Mismatch, Nodes, Region, Regions, Rows, View
from quantrt.regions.rows import find_rows
from quantrt.regions.sequences import find_sequences
from quantrt.regions.views import is_view

__all__ = ["partition"]


def partition(graph: ir.Model) -> Regions:
    """The nodes of a canonical graph in regions, each in one, in an order in which these can run.

    Attention first, behind what shares sequences, because its parts would fit elsewhere too; then products
    with their epilogues, the last of the graph first, so that a sum of two products belongs to the later one;
    then pools, resized images and norms over groups of channels with theirs; then chains of what is left that
    is elementwise or reduces rows. A node that nothing fits is a region of its own. What no region reads in
    the end is left out.

    Raises:
        InternalError: nodes without a name, or with one name.
    """
    _check_names(graph)
    facts = find_host(gather_facts(graph))
    clusters = Clusters(len(facts.nodes), facts.successors)
    claimed = set(host_nodes(facts))
    found: list[Region] = [_alone(position, facts, Host()) for position in claimed]
    mismatches: list[Mismatch] = []
    products = partial(_find_around, "product", _find_product)
    pools = partial(_find_around, "pool", find_pool)
    resizes = partial(_find_around, "resize", find_resize)
    norms = partial(_find_around, "group norm", find_group_norm)
    families = (find_attention, find_linear_attention, products, pools, resizes, norms, find_rows)
    for part in (find_sequences, *families):
        regions, failed = part(facts, clusters, claimed)
        places = {facts.nodes[position].name: position for position in range(len(facts.nodes))}
        claimed.update(places[name] for region in regions for name in region.nodes)
        found += regions
        mismatches += failed
    for position in range(len(facts.nodes)):
        if position not in claimed:
            found.append(_left(position, facts))
    told = tuple(dict.fromkeys(_worth_telling(mismatches, found)))
    return Regions(_that_count(_in_order(found, facts, clusters), facts), told, facts.host)


def _check_names(graph: ir.Model) -> None:
    names = [node.name for node in graph.graph]
    if not all(names) or len(set(names)) != len(names):
        raise InternalError("cannot group nodes that have no name of their own", expected="a loaded model")


def _find_product(position: int, facts: Facts) -> Anchor | str | None:
    return find_gemm(position, facts) or find_conv(position, facts) or find_conv_transpose(position, facts)


def _find_around(
    pattern: str,
    find_anchor: Callable[[int, Facts], Anchor | str | None],
    facts: Facts,
    clusters: Clusters,
    claimed: set[int],
) -> tuple[list[Region], list[Mismatch]]:
    """Regions around every anchor of one kind, the elementwise nodes behind it included."""
    regions: list[Region] = []
    mismatches: list[Mismatch] = []
    anchors = []
    for position, node in enumerate(facts.nodes):
        if position in claimed or not node.outputs or not facts.is_read(node.outputs[0]):
            continue
        anchor = find_anchor(position, facts)
        if isinstance(anchor, str):
            mismatches.append(Mismatch(pattern, anchor, node.name or ""))
        elif anchor is not None:
            anchors.append(anchor)
    taken = {*claimed, *(anchor.position for anchor in anchors)}
    places = {node.name: position for position, node in enumerate(facts.nodes)}
    for anchor in reversed(anchors):
        region, failed = _fused(anchor, facts, clusters, taken)
        taken.update(places[name] for name in region.nodes)
        regions.append(region)
        mismatches += failed
    return regions, mismatches


def _fused(
    anchor: Anchor, facts: Facts, clusters: Clusters, claimed: Collection[int]
) -> tuple[Region, list[Mismatch]]:
    """The region around an anchor: with both halves of a gate where it is one, else with what follows it."""
    gate = find_gate(anchor, facts)
    found = None if gate is None else fuse_gate(gate, facts, clusters, claimed)
    if isinstance(found, tuple):
        return found
    region, failed = fuse_epilogue(anchor, facts, clusters, claimed)
    return region, failed if found is None else [*failed, found]


def _worth_telling(mismatches: list[Mismatch], found: list[Region]) -> list[Mismatch]:
    """All but the parts of norms that are in no product's epilogue: they are where they belong."""
    norms = {
        name
        for region in found
        if isinstance(region.formula, GroupNorm)
        or (isinstance(region.formula, Rows) and region.formula.expression.has_row)
        for name in region.nodes
    }
    return [x for x in mismatches if x.pattern != "epilogue" or x.node not in norms]


def _left(position: int, facts: Facts) -> Region:
    node = facts.nodes[position]
    if is_view(node, facts):
        return _alone(position, facts, View())
    concat = find_concat(position, facts)
    if concat is not None:
        return _alone(position, facts, concat)
    return _alone(position, facts, Nodes(reads_device_values(node, facts)))


def _alone(position: int, facts: Facts, formula: View | Host | Nodes | Concat) -> Region:
    name = facts.nodes[position].name or ""
    inputs, outputs = facts.crossing([position])
    return Region(name, formula, (name,), inputs, outputs)


def _that_count(ordered: tuple[Region, ...], facts: Facts) -> tuple[Region, ...]:
    """Without regions whose results no other reads, such as a causal mask that attention knows of itself."""
    read = set(facts.outputs)
    kept: list[Region] = []
    for region in reversed(ordered):
        if read & set(region.outputs):
            read.update(region.inputs)
            kept.append(region)
    return tuple(reversed(kept))


def _in_order(found: list[Region], facts: Facts, clusters: Clusters) -> tuple[Region, ...]:
    places = {node.name: position for position, node in enumerate(facts.nodes)}
    by_group = {clusters.group_of(places[region.nodes[0]]): region for region in found}
    return tuple(by_group[group] for group in clusters.order())
