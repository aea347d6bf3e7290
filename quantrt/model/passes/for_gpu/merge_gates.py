# SPDX-License-Identifier: Apache-2.0
"""Gated activations read one product that is split at once: what a kernel with both halves at hand computes.

    GEGLU    h, g = Split(x @ w + b)                      h, g = Split(x @ w)
             y = h * gelu(g)                        ->    y = (h + b_h) * gelu(g + b_g)
    SwiGLU   y = silu(x @ w_g) * (x @ w_u)          ->    g, u = Split(x @ [w_g | w_u]),  y = silu(g) * u

N. Shazeer, "GLU variants improve Transformer", 2020. Biases move behind the Split, each half with its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    add_constant,
    constant_of,
    int_attribute,
    is_operator,
    only_consumer,
    taken_names,
)
from quantrt.ir.sources import SOURCES_KEY, sources_of
from quantrt.model.passes.for_gpu.constant_product import (
    ConstantProduct,
    product_of,
    remove_nodes,
    side_by_side,
)

__all__ = ["merge_gates"]

SPLIT_OPSET = 13  # its sizes became an input
MAX_STEPS = 12
"""Nodes between a half and where the halves meet: GELU spelled with tanh has nine."""

_COMBINING = ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub")
_BENDING = tuple(
    "Clip Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Sigmoid Softplus Softsign Swish "
    "Tanh".split()
)


def merge_gates(graph: ir.Model) -> int:
    """Rewrite the gated activations of the main graph; how many."""
    if graph.opset_imports.get("", SPLIT_OPSET) < SPLIT_OPSET:
        return 0
    count, taken = 0, taken_names(graph)  # no other value made here is called as the constants are
    for node in list(graph.graph):
        if node.graph is not graph.graph:
            continue  # merged into another meanwhile
        _spell_split(graph, node, taken)
        count += _split_first(graph, node, taken) or _merge(graph, node, taken)
    return count


def _spell_split(graph: ir.Model, node: ir.Node, taken: set[str]) -> None:
    """A Split in the place of two Slices that are the halves of a gate, as TorchScript writes it."""
    product = product_of(node, takes_add=True)
    users = [] if product is None else list(dict.fromkeys(use.node for use in product.result.uses()))
    slices = [user for user in users if not is_operator(user, "Shape")]
    if product is None or len(slices) != 2 or product.result.is_graph_output():
        return
    columns = product.weight.shape[1]
    ranges = {_columns(user, product.result, columns): user for user in slices if user.graph is node.graph}
    halves = [ranges.get((0, columns // 2)), ranges.get((columns // 2, columns))]
    if columns % 2 or halves[0] is None or halves[1] is None:
        return
    if _meeting(halves[0].outputs[0], halves[1].outputs[0]) is None:
        return
    sizes = add_constant(graph, f"{node.name}.halves", np.array([columns // 2] * 2, np.int64), taken)
    split = ir.Node("", "Split", [product.result, sizes], num_outputs=2, name=f"{node.name}.split")
    split.attributes["axis"] = ir.AttrInt64("axis", -1)
    split.metadata_props[SOURCES_KEY] = "\n".join(
        dict.fromkeys(s for user in slices for s in sources_of(user))
    )
    graph.graph.insert_after(product.nodes[-1], [split])
    for user, half in zip(halves, split.outputs, strict=True):
        if user is not None:
            _take_place(graph, user, half)
            _describe(half, product.result, columns // 2, half.name)


def _columns(node: ir.Node, value: ir.Value, columns: int) -> tuple[int, int] | None:
    """Which columns of a value a Slice of its last axis takes."""
    numbers = [constant_of(given) for given in node.inputs[1:]]
    if (
        not is_operator(node, "Slice")
        or value.shape is None
        or len(numbers) < 3
        or node.inputs[0] is not value
    ):
        return None
    found = [int(x.reshape(-1)[0]) for x in numbers if x is not None and x.size == 1]
    start, end, axis, step = (*found, 1)[:4] if len(found) == len(numbers) else (0, 0, 0, 0)
    if axis not in (-1, len(value.shape) - 1) or step != 1:
        return None
    return slice(start, end).indices(columns)[:2]


def _take_place(graph: ir.Model, node: ir.Node, value: ir.Value) -> None:
    """Put a value in the place of a node's result."""
    result = node.outputs[0]
    name = result.name
    result.replace_all_uses_with(value, replace_graph_outputs=True)
    graph.graph.remove(node, safe=True)
    result.name, value.name = None, name


def _split_first(graph: ir.Model, node: ir.Node, taken: set[str]) -> bool:
    """Put the bias of a product that is split into a gate's halves behind the Split."""
    product = product_of(node, takes_add=True)
    split = None if product is None else only_consumer(product.result)
    if product is None or product.bias is None or split is None or not _is_halving(split, product):
        return False
    if _meeting(split.outputs[0], split.outputs[1]) is None:
        return False
    sources = [node, *product.nodes[1:]]
    matmul = _matmul(graph, node, product.weight, sources, taken)
    _describe(matmul.outputs[0], product.result, product.weight.shape[1], f"{product.result.name}.product")
    split.replace_input_with(0, matmul.outputs[0])
    for half, bias in zip(split.outputs, np.split(product.bias, 2), strict=True):
        _add_bias(graph, split, half, bias, taken)
    remove_nodes(graph, product.nodes)
    return True


def _merge(graph: ir.Model, node: ir.Node, taken: set[str]) -> bool:
    """Make one product of two whose results meet behind an activation."""
    one = product_of(node, takes_add=False)
    x = node.inputs[0] if one is not None else None
    if one is None or x is None or not _goes_on(one.result):
        return False
    for other in _partners(one, x, graph.graph):
        if _meeting(one.result, other.result) is not None:
            _join(graph, [one, other], taken)
            return True
    return False


def _partners(one: ConstantProduct, x: ir.Value, graph: ir.Graph) -> Iterator[ConstantProduct]:
    """Products of x like this one that stand behind it."""
    readers = {use.node for use in x.uses()}
    is_behind = False
    for node in graph:
        if node is one.nodes[0]:
            is_behind = True
        elif is_behind and node in readers and node.op_type == one.nodes[0].op_type:
            other = product_of(node, takes_add=False)
            is_alike = other is not None and other.weight.shape == one.weight.shape
            if other is not None and is_alike and other.weight.dtype == one.weight.dtype:
                yield other


def _is_halving(split: ir.Node, product: ConstantProduct) -> bool:
    """Whether a node cuts a product's columns into two equal parts."""
    if not is_operator(split, "Split") or len(split.outputs) != 2 or product.result.shape is None:
        return False
    columns, rank = product.weight.shape[1], len(product.result.shape)
    sizes = constant_of(split.inputs[1]) if len(split.inputs) > 1 else None
    is_even = columns % 2 == 0 and (sizes is None or sizes.tolist() == [columns // 2] * 2)
    has_sizes = sizes is not None or len(split.inputs) < 2 or split.inputs[1] is None
    return is_even and has_sizes and int_attribute(split, "axis", 0) in (-1, rank - 1)


def _goes_on(value: ir.Value) -> bool:
    return bool(value.uses()) and not value.is_graph_output()


def _meeting(one: ir.Value, other: ir.Value) -> ir.Node | None:
    """The node that combines what becomes of two values, an activation of one of them among it."""
    if not (_goes_on(one) and _goes_on(other)):
        return None
    first, second = _reached(one), _reached(other)
    common = [node for node in first if node in second]
    is_bent = any(node.op_type in _BENDING for node in {**first, **second} if node not in common)
    return common[0] if common and is_bent else None


def _reached(value: ir.Value) -> dict[ir.Node, None]:
    """Elementwise nodes behind a value, nearest first."""
    found: dict[ir.Node, None] = {}
    waiting = [value]
    while waiting and len(found) < MAX_STEPS:
        for use in waiting.pop(0).uses():
            if is_operator(use.node, *_COMBINING, *_BENDING) and use.node not in found:
                found[use.node] = None
                waiting.append(use.node.outputs[0])
    return found


def _join(graph: ir.Model, products: Sequence[ConstantProduct], taken: set[str]) -> None:
    first = products[0].nodes[0]
    weight = side_by_side([product.weight for product in products])
    nodes = [product.nodes[0] for product in products]
    matmul = _matmul(graph, first, weight, nodes, taken)
    model = products[0].result
    _describe(matmul.outputs[0], model, weight.shape[1], f"{model.name}.merged_product")
    sizes = add_constant(graph, f"{first.name}.halves", np.array([weight.shape[1] // 2] * 2, np.int64), taken)
    split = ir.Node("", "Split", [matmul.outputs[0], sizes], num_outputs=2, name=f"{first.name}.split")
    split.attributes["axis"] = ir.AttrInt64("axis", -1)
    split.metadata_props[SOURCES_KEY] = matmul.metadata_props[SOURCES_KEY]
    graph.graph.insert_after(matmul, [split])
    for product, half in zip(products, split.outputs, strict=True):
        half.shape, half.type = product.result.shape, product.result.type
        name = product.result.name
        product.result.replace_all_uses_with(half)
        product.result.name, half.name = None, name
        if product.bias is not None:
            _add_bias(graph, split, half, product.bias, taken)
        remove_nodes(graph, product.nodes)


def _matmul(
    graph: ir.Model, place: ir.Node, weight: np.ndarray, merged: Sequence[ir.Node], taken: set[str]
) -> ir.Node:
    """A MatMul of the same x, in front of a node."""
    constant = add_constant(graph, f"{place.name}.columns", np.ascontiguousarray(weight), taken)
    node = ir.Node("", "MatMul", [place.inputs[0], constant], name=place.name)
    names = dict.fromkeys(source for old in merged for source in sources_of(old))
    node.metadata_props[SOURCES_KEY] = "\n".join(names)
    graph.graph.insert_before(place, [node])
    return node


def _describe(value: ir.Value, model: ir.Value, width: int, name: str | None) -> None:
    value.name, value.type = name, model.type
    if model.shape is not None:
        value.shape = ir.Shape([*model.shape.dims[:-1], width])


def _add_bias(graph: ir.Model, split: ir.Node, half: ir.Value, bias: np.ndarray, taken: set[str]) -> None:
    """Half + bias wherever half was read."""
    constant = add_constant(graph, f"{half.name}.bias", np.ascontiguousarray(bias), taken)
    add = ir.Node("", "Add", [half, constant], name=f"{half.name}.add_bias")
    add.metadata_props[SOURCES_KEY] = split.metadata_props.get(SOURCES_KEY, split.name or "")
    total = add.outputs[0]
    total.name, total.type, total.shape = f"{half.name}.biased", half.type, half.shape
    half.replace_all_uses_with(total)
    add.replace_input_with(0, half)
    graph.graph.insert_after(split, [add])
