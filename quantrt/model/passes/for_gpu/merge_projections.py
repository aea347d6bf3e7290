# SPDX-License-Identifier: Apache-2.0
"""Products of one activation with several constant weights become one product, whose result is split.

    q = x @ w_q + b_q,  k = x @ w_k + b_k,  v = x @ w_v + b_v
    q, k, v = Split(x @ [w_q | w_k | w_v] + [b_q | b_k | b_v])

One wide product reads x once and fills a GPU better than three narrow ones. It is done where nothing is lost:
where every result goes on through nodes that only move elements, as the heads of attention do, and not into
an activation that each product would compute on its way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, is_operator, taken_names
from quantrt.ir.sources import SOURCES_KEY, sources_of
from quantrt.model.passes.for_gpu.constant_product import (
    ConstantProduct,
    product_of,
    remove_nodes,
    side_by_side,
)

__all__ = ["merge_projections"]

MOVERS = ("Reshape", "Split", "Squeeze", "Transpose", "Unsqueeze")
SPLIT_OPSET = 13  # its sizes became an input


def merge_projections(graph: ir.Model) -> int:
    """Merge products of the main graph that read the same value; how many became part of another."""
    if graph.opset_imports.get("", SPLIT_OPSET) < SPLIT_OPSET:
        return 0
    values = [*graph.graph.inputs, *(value for node in graph.graph for value in node.outputs)]
    count, taken = 0, taken_names(graph)  # no other value made here is called as the constants are
    for x in values:
        for group in _groups(x, graph.graph):
            _merge(graph, x, group, taken)
            count += len(group) - 1
    return count


def _groups(x: ir.Value, graph: ir.Graph) -> Iterator[list[ConstantProduct]]:
    """Projections of x that can be one, two at least: equal operators, element types and depths."""
    found: dict[tuple[str, str, int], list[ConstantProduct]] = {}
    for node in dict.fromkeys(use.node for use in x.uses()):
        projection = _projection(node, x) if node.graph is graph else None
        if projection is not None:
            key = (node.op_type, projection.weight.dtype.name, projection.weight.shape[0])
            found.setdefault(key, []).append(projection)
    groups = [group for group in found.values() if len(group) > 1]
    order = {node: place for place, node in enumerate(graph)} if groups else {}
    for group in groups:
        yield sorted(group, key=lambda projection: order[projection.nodes[0]])


def _projection(node: ir.Node, x: ir.Value) -> ConstantProduct | None:
    """The projection of x that a node is, where its result is only moved."""
    product = product_of(node, takes_add=True)
    if product is None or node.inputs[0] is not x or product.weight.dtype.kind not in "fV":
        return None
    return product if _is_only_moved(product.result) else None


def _is_only_moved(value: ir.Value) -> bool:
    uses = tuple(value.uses())
    return bool(uses) and not value.is_graph_output() and all(is_operator(use.node, *MOVERS) for use in uses)


def _merge(graph: ir.Model, x: ir.Value, group: Sequence[ConstantProduct], taken: set[str]) -> None:
    first = group[0].nodes[0]
    weight = side_by_side([projection.weight for projection in group])
    sizes = [projection.weight.shape[1] for projection in group]
    inputs = [x, add_constant(graph, f"{first.name}.merged_weight", weight, taken)]
    bias = _merged_bias(graph, first, group, taken)
    if is_operator(first, "Gemm") and bias is not None:
        inputs.append(bias)
    product = _node(first.op_type, inputs, [projection.nodes[0] for projection in group], first.name)
    added = [product]
    if is_operator(first, "MatMul") and bias is not None:
        adds = [projection.nodes[1] for projection in group if len(projection.nodes) > 1]
        added.append(_node("Add", [product.outputs[0], bias], adds, adds[0].name))
    whole = added[-1].outputs[0]
    split_sizes = add_constant(graph, f"{first.name}.split_sizes", np.array(sizes, np.int64), taken)
    last = [projection.nodes[-1] for projection in group]
    split = _node("Split", [whole, split_sizes], last, f"{first.name}.split", outputs=len(group))
    split.attributes["axis"] = ir.AttrInt64("axis", -1)
    _describe(added, group, sum(sizes))
    _put_in_place(graph, [*added, split], group)


def _merged_bias(
    graph: ir.Model, first: ir.Node, group: Sequence[ConstantProduct], taken: set[str]
) -> ir.Value | None:
    """All biases in a row, zeros where one has none; None when none has."""
    if all(projection.bias is None for projection in group):
        return None
    parts = [
        np.zeros(projection.weight.shape[1], projection.weight.dtype)
        if projection.bias is None
        else projection.bias
        for projection in group
    ]
    return add_constant(graph, f"{first.name}.merged_bias", np.concatenate(parts), taken)


def _node(
    op_type: str,
    inputs: Sequence[ir.Value],
    merged: Sequence[ir.Node],
    name: str | None,
    *,
    outputs: int = 1,
) -> ir.Node:
    """A node that stands for those of the file that were merged into it."""
    node = ir.Node("", op_type, inputs, num_outputs=outputs, name=name)
    names = dict.fromkeys(source for old in merged for source in sources_of(old))
    node.metadata_props[SOURCES_KEY] = "\n".join(names)
    return node


def _describe(added: Sequence[ir.Node], group: Sequence[ConstantProduct], width: int) -> None:
    """Name, type and shape of the values between the merged nodes."""
    for node, place in zip(added, ("product", "sum"), strict=False):
        value, model = node.outputs[0], group[0].result
        value.name = f"{model.name}.merged_{place}"
        value.type = model.type
        if model.shape is not None:
            value.shape = ir.Shape([*model.shape.dims[:-1], width])


def _put_in_place(graph: ir.Model, added: Sequence[ir.Node], group: Sequence[ConstantProduct]) -> None:
    """Insert the new nodes where the first of the old ones stood, and remove those and their constants."""
    graph.graph.insert_before(group[0].nodes[0], added)
    for projection, part in zip(group, added[-1].outputs, strict=True):
        part.shape, part.type, name = projection.result.shape, projection.result.type, projection.result.name
        projection.result.replace_all_uses_with(part)
        remove_nodes(graph, projection.nodes)
        projection.result.name = None
        part.name = name
