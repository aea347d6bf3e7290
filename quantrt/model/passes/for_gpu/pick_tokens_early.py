# SPDX-License-Identifier: Apache-2.0
"""Where one token alone is read of a result, it alone is computed: the Slice moves up to what mixes tokens.

    attention -> x @ w + b -> Add residual -> LayerNormalization -> ... -> Slice [:, 0:1]
        ->  attention -> Slice [:, 0:1] -> x @ w + b -> Add Slice(residual) -> LayerNormalization -> ...

The class token of a vision transformer, the first token of a BERT with a pooler: of the last block only its
attention has to see all tokens. A Slice moves where everything that reads a value reads the same token of it,
through nodes that compute each token from itself, and only as far as the first of them that is a product or
works on rows: elementwise nodes before it belong to the kernel of what stands before them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from quantrt.ir.edit import constant_of, free_name, int_attribute, is_operator
from quantrt.ir.same_values import add_names
from quantrt.ir.sources import SOURCES_KEY, sources_of
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["pick_tokens_early"]

_AXIS, _RANK = 1, 3
"""Of tokens in x [B, S, C]."""

_ELEMENTWISE = tuple(
    "Abs Add Cast Clip Div Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Max Min Mish Mul Neg Pow "
    "Reciprocal Relu Selu Sigmoid Softplus Softsign Sqrt Sub Swish Tanh Where".split()
)
_ROWS = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "Softmax", "LogSoftmax")
_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare")


def pick_tokens_early(graph: ir.Model) -> int:
    """Move the Slices of the main graph that take one token; how many nodes compute fewer tokens."""
    count = 0
    for node in reversed(list(graph.graph)):
        if node.graph is graph.graph and _is_pick(node) and _can_begin(node):
            count += _move_up(graph, node)
    if count:
        remove_unused(graph)
    return count


def _is_pick(node: ir.Node) -> bool:
    """Whether a node takes one of the tokens of x [B, S, C]."""
    if not is_operator(node, "Slice") or len(node.inputs) < 4 or node.inputs[0] is None:
        return False
    numbers = [constant_of(value) for value in node.inputs[1:]]
    if any(number is None or number.size != 1 for number in numbers):
        return False
    axis = numbers[2]
    x, result = node.inputs[0].shape, node.outputs[0].shape
    if x is None or result is None or len(x) != _RANK or axis is None:
        return False
    return int(axis.reshape(-1)[0]) % _RANK == _AXIS and result[_AXIS] == 1 != x[_AXIS]


def _can_begin(pick: ir.Node) -> bool:
    """Whether no more is read of what a Slice is of, and its maker computes token by token: one look."""
    value = pick.inputs[0]
    maker = None if value is None else value.producer()
    if value is None or maker is None or value.is_graph_output() or not _is_tokenwise(maker):
        return False
    return all(_is_pick(use.node) and _takes(use.node) == _takes(pick) for use in value.uses())


def _move_up(graph: ir.Model, pick: ir.Node) -> int:
    """Move a Slice, with those that take the same token of what is computed on the way; of how many nodes."""
    picks = {node for node in graph.graph if _is_pick(node) and _takes(node) == _takes(pick)}
    moved = _behind_first_product(_tokenwise(graph, pick, picks))
    if not moved:
        return 0
    made: dict[ir.Value, ir.Value] = {}
    results = {node.outputs[0] for node in moved}
    for node in moved:
        for place, value in enumerate(node.inputs[:1] if _is_product(node) else node.inputs):
            if value is not None and value not in results and _has_tokens(value):
                if value not in made:
                    made[value] = _insert_pick(graph, pick, value, node)
                node.replace_input_with(place, made[value])
    for node in moved:
        _narrow(node.outputs[0])
    for node in picks:
        if node.inputs[0] in results:
            _drop(graph, node)
    return len(moved)


def _takes(node: ir.Node) -> tuple[int, ...]:
    """The numbers of a pick: start, end, axis, step."""
    numbers = [constant_of(value) for value in node.inputs[1:]]
    start, end, _, *step = (int(number.reshape(-1)[0]) for number in numbers if number is not None)
    return start, end, _AXIS, *(step or [1])


def _tokenwise(graph: ir.Model, pick: ir.Node, picks: Collection[ir.Node]) -> list[ir.Node]:
    """Nodes of whose results no more is read than the tokens of `picks`, back from one of these; in order."""
    found: set[ir.Node] = set()
    wanted = {pick.inputs[0]}
    for node in reversed(list(graph.graph)):
        if not wanted.intersection(node.outputs) or not _is_tokenwise(node):
            continue
        result = node.outputs[0]
        if result.is_graph_output() or not all(
            use.node in found or use.node in picks for use in result.uses()
        ):
            continue
        found.add(node)
        wanted.update(value for value in node.inputs if value is not None)
    return [node for node in graph.graph if node in found]


def _is_tokenwise(node: ir.Node) -> bool:
    """Whether each token of a result [B, S, C] is computed from the same token of what has tokens."""
    result = node.outputs[0]
    if len(node.outputs) != 1 or result.shape is None or len(result.shape) != _RANK:
        return False
    if _is_product(node):
        return _like(node.inputs[0], result)
    given = [value for value in node.inputs if value is not None]
    with_tokens = [value for value in given if value.shape is None or _has_tokens(value)]
    if not with_tokens or not all(_like(value, result) for value in with_tokens):
        return False
    return is_operator(node, *_ELEMENTWISE) or _works_on_rows(node)


def _is_product(node: ir.Node) -> bool:
    weight = constant_of(node.inputs[1]) if is_operator(node, "MatMul") else None
    return weight is not None and weight.ndim == 2


def _works_on_rows(node: ir.Node) -> bool:
    if is_operator(node, *_ROWS):
        return int_attribute(node, "axis", -1) in (-1, _RANK - 1)
    if not is_operator(node, *_REDUCTIONS) or not int_attribute(node, "keepdims", 1):
        return False
    attribute = node.attributes.get("axes")
    given = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    axes = attribute.as_ints() if attribute is not None else () if given is None else given.reshape(-1)
    return {int(axis) % _RANK for axis in axes} == {_RANK - 1}


def _has_tokens(value: ir.Value) -> bool:
    """Whether a value of known rank is another for each token, when it is broadcast to [B, S, C]."""
    return value.shape is not None and len(value.shape) >= _RANK - _AXIS and value.shape[_AXIS - _RANK] != 1


def _like(value: ir.Value | None, result: ir.Value) -> bool:
    """Whether a value has the tokens of a result, and is no constant."""
    if value is None or value.shape is None or result.shape is None or len(value.shape) != _RANK:
        return False
    size = value.shape[_AXIS]
    is_known = isinstance(size, int) or size.value is not None
    return is_known and size == result.shape[_AXIS] and constant_of(value) is None


def _behind_first_product(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    """Of nodes in order, those that are a product or work on rows, or stand behind one that does."""
    kept: set[ir.Node] = set()
    for node in nodes:
        makers = {value.producer() for value in node.inputs if value is not None}
        if not is_operator(node, *_ELEMENTWISE) or makers & kept:
            kept.add(node)
    return [node for node in nodes if node in kept]


def _insert_pick(graph: ir.Model, pick: ir.Node, value: ir.Value, reader: ir.Node) -> ir.Value:
    """A Slice of a value like another one, in front of the first node that reads it."""
    node = ir.Node("", "Slice", [value, *pick.inputs[1:]], name=free_name(graph, f"{pick.name}.{value.name}"))
    node.metadata_props[SOURCES_KEY] = "\n".join(sources_of(pick))
    result = node.outputs[0]
    result.name, result.type, result.shape = f"{node.name}.token", value.type, value.shape
    _narrow(result)
    graph.graph.insert_before(reader, [node])
    return result


def _narrow(value: ir.Value) -> None:
    dims = list(value.shape.dims) if value.shape is not None else []
    value.shape = ir.Shape([*dims[:_AXIS], 1, *dims[_AXIS + 1 :]])


def _drop(graph: ir.Model, pick: ir.Node) -> None:
    """Let what a Slice was of, one token now, take its place; an output of the graph keeps its name."""
    before, after = pick.inputs[0], pick.outputs[0]
    assert before is not None
    name = after.name if after.is_graph_output() else before.name
    add_names(before, after)
    after.replace_all_uses_with(before, replace_graph_outputs=True)
    graph.graph.remove(pick, safe=True)
    after.name, before.name = None, name
