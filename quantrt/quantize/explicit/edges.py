# SPDX-License-Identifier: Apache-2.0
"""Activations behind QuantizeLinear -> DequantizeLinear: which edges read codes, and what stays a rounding.

DequantizeLinear moves forward over value-preserving operators, QuantizeLinear vanishes where a value is on
its grid already (NVIDIA TensorRT developer guide, "Working with quantized types", Q/DQ propagation). Where
every reader multiplies or adds codes, the pair becomes an annotation of the edges; elsewhere the rounding is
spelled out in floats, so that nothing reads unrounded what the model rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from quantrt.ir.edit import all_names, constant_of, is_operator, only_consumer
from quantrt.quantize.explicit.grids import CodeGrid, grid_of
from quantrt.quantize.explicit.rounding import RoundingWriter
from quantrt.quantize.patterns.behind_conv import is_mean_of_images
from quantrt.quantize.quantized_model import Use
from quantrt.quantize.target import Target
from quantrt.quantize.targets.zero_points import why_no_zero_point

__all__ = ["Edges", "read_edges"]

ON_GRID = ("Relu", "Identity", "Expand", "DepthToSpace", "SpaceToDepth", "Gather", "Split", "Tile")
"""Operators besides the target's value-preserving ones whose results are on the grid of their first input."""


@dataclass
class Edges:
    """What was read.

    Attributes:
        uses: for each edge that reads codes, the value whose grid it reads; an operator that moves values
            hands codes on.
        readers: names of the products, sums and means that codes arrive at.
        grids: of those values, by name.
        reasons: of QuantizeLinear and DequantizeLinear nodes, and of products that read no codes, by name.
    """

    uses: dict[Use, str] = field(default_factory=dict)
    readers: set[str] = field(default_factory=set)
    grids: dict[str, CodeGrid] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def read_edges(graph: ir.Model, target: Target, products: Collection[str]) -> Edges:
    """Take every pair out of a graph that has constants only as floats.

    Args:
        products: names of the products whose weights are codes.
    """
    edges = Edges()
    _move_behind_clips(graph.graph)
    grids = _merge_redundant(graph.graph, target, edges)
    reader = _Reader(graph, target, products, edges, grids)
    for node in list(graph.graph):
        if is_operator(node, "QuantizeLinear"):
            reader.take(node)
    return edges


def _move_behind_clips(graph: ir.Graph) -> None:
    """Move a pair behind the Relu or Clip that reads it, where the two commute."""
    for clip in list(graph):
        is_clip = is_operator(clip, "Relu", "Clip")
        pair = clip.inputs[0].producer() if is_clip and clip.inputs[0] is not None else None
        grid = _pair_grid(pair) if pair is not None and is_operator(pair, "DequantizeLinear") else None
        if pair is None or grid is None or not _commutes(clip, grid):
            continue
        source, result = _quantizer(pair), clip.outputs[0]
        codes = pair.inputs[0]
        is_alone = (
            codes is not None and only_consumer(codes) is pair and only_consumer(pair.outputs[0]) is clip
        )
        if source is None or not is_alone or result.is_graph_output():
            continue
        result.replace_all_uses_with(pair.outputs[0])
        clip.replace_input_with(0, source.inputs[0])
        source.replace_input_with(0, result)
        graph.remove(clip)
        graph.insert_before(source, clip)


def _commutes(clip: ir.Node, grid: CodeGrid) -> bool:
    """Whether values may be clipped before they are rounded: rounding is monotone.

    So it is where rounding keeps the bounds, as it keeps 0, or they are beyond all codes.
    """
    if clip.op_type == "Relu":
        return True
    bounds = [*clip.inputs[1:], None, None][:2]
    return all(
        bound is None or grid.keeps_bound(constant_of(bound), is_upper=is_upper)
        for bound, is_upper in zip(bounds, (False, True), strict=True)
    )


def _merge_redundant(graph: ir.Graph, target: Target, edges: Edges) -> dict[ir.Value, CodeGrid]:
    """Bypass pairs whose input is on their grid already, or that are there twice; the grids values are on.

    A pair behind an operator that cannot move codes stays: its value is on the grid and need not be rounded.
    """
    grids: dict[ir.Value, CodeGrid] = {}
    movers = {rule.op_type for rule in target.rules if rule.passes} - {"Concat"}  # the pair behind one stays
    rounded: dict[tuple[ir.Value, CodeGrid], ir.Value] = {}
    for node in list(graph):
        if not is_operator(node, "DequantizeLinear"):
            found = _kept_grid(node, grids, target)
            if found is not None:
                grids.update(dict.fromkeys(node.outputs, found))
            continue
        grid, source, output = _pair_grid(node), _quantizer(node), node.outputs[0]
        x = source.inputs[0] if source is not None else None
        if grid is None or x is None:
            continue
        is_moved = is_operator(x.producer(), *movers, "DequantizeLinear")
        same = x if grids.get(x) == grid and is_moved else rounded.get((x, grid))
        if same is not None and not output.is_graph_output():
            output.replace_all_uses_with(same)
            for other in _drop_pair(graph, node):
                edges.reasons[other.name or ""] = "redundant: its value is on this grid already"
        elif not output.is_graph_output():
            grids[output] = grid
            rounded[(x, grid)] = output
    return grids


def _drop_pair(graph: ir.Graph, dequantize: ir.Node) -> Iterator[ir.Node]:
    """Remove a DequantizeLinear that nothing reads, and its QuantizeLinear where nothing else does; these."""
    source = _quantizer(dequantize)
    graph.remove(dequantize, safe=True)
    yield dequantize
    if source is not None and not source.outputs[0].uses() and not source.outputs[0].is_graph_output():
        graph.remove(source, safe=True)
        yield source


def _pair_grid(dequantize: ir.Node) -> CodeGrid | None:
    """The grid of a pair; None where the two nodes do not fit together."""
    source = _quantizer(dequantize)
    if source is None:
        return None
    grids = grid_of(source), grid_of(dequantize)
    return grids[0] if isinstance(grids[0], CodeGrid) and grids[0] == grids[1] else None


def _quantizer(dequantize: ir.Node) -> ir.Node | None:
    codes = dequantize.inputs[0]
    maker = codes.producer() if codes is not None else None
    return maker if is_operator(maker, "QuantizeLinear") else None


def _kept_grid(node: ir.Node, grids: dict[ir.Value, CodeGrid], target: Target) -> CodeGrid | None:
    """The grid that all results of a node are on, when it hands on values or zeros."""
    rule = target.rule(node.op_type) if is_operator(node, node.op_type) else None
    data = [value for value in node.inputs[:1] if value is not None]
    if is_operator(node, "Concat"):
        data = [value for value in node.inputs if value is not None]
    elif is_operator(node, "Pad"):
        if not _pads_zeros(node):
            return None
    elif not is_operator(node, *ON_GRID) and (rule is None or not rule.passes):
        return None
    found = {grids.get(value) for value in data}
    return found.pop() if len(found) == 1 else None


def _pads_zeros(node: ir.Node) -> bool:
    attribute = node.attributes.get("mode")
    if attribute is not None and attribute.as_string() != "constant":
        return True
    value = node.inputs[2] if len(node.inputs) > 2 else None
    array = constant_of(value)
    return value is None or (array is not None and not array.any())


@dataclass(frozen=True)
class _Wish:
    """What a reader wants.

    Attributes:
        any: something behind it reads codes.
        all: nothing behind it reads floats.
        is_sum: it adds the value to another, which may happen in the kernel that makes it.
    """

    any: bool
    all: bool
    is_sum: bool = False


_FLOAT = _Wish(any=False, all=False)


class _Reader:
    """Takes pairs out one by one, in topological order."""

    def __init__(
        self,
        graph: ir.Model,
        target: Target,
        products: Collection[str],
        edges: Edges,
        grids: Mapping[ir.Value, CodeGrid],
    ) -> None:
        self._grids = grids
        self._graph = graph
        self._target = target
        self._products = products
        self._edges = edges
        self._taken = all_names(graph)

    def take(self, quantize: ir.Node) -> None:
        """Replace the pairs behind one QuantizeLinear; codes that others read keep their node."""
        name, x, grid = quantize.name or "", quantize.inputs[0], grid_of(quantize)
        if x is None or isinstance(grid, str):
            self._edges.reasons[name] = f"computed as it is: {grid}"
            return
        pairs = [node for node, _ in quantize.outputs[0].uses() if _pair_grid(node) == grid]
        readers = [(use.node, use.idx) for node in pairs for use in node.outputs[0].uses()]
        outputs = [node.outputs[0] for node in pairs if node.outputs[0].is_graph_output()]
        if not pairs or len(outputs) > 1:
            self._edges.reasons[name] = (
                "computed as it is: its codes are an output, or read by integer operators"
            )
            return
        phrase = self._replace(RoundingWriter(self._graph, quantize, x, grid, self._taken), readers, outputs)
        self._edges.reasons[name] = phrase
        for node in pairs:
            self._edges.reasons.setdefault(node.name or "", phrase)
            self._graph.graph.remove(node, safe=True)
        if not quantize.outputs[0].uses() and not quantize.outputs[0].is_graph_output():
            self._graph.graph.remove(quantize, safe=True)

    def _replace(
        self, writer: RoundingWriter, readers: list[tuple[ir.Node, int]], outputs: list[ir.Value]
    ) -> str:
        """Give the readers of a pair what they read from now on; a phrase that says what that is."""
        grid, x = writer.grid, writer.x
        wishes = {use: self._wish(*use, grid) for use in readers}
        has_codes = any(wish.any for wish in wishes.values())
        if not readers and not outputs:
            return "nothing reads it"
        only_codes = not outputs and self._is_free(x) and self._all_codes(readers, wishes)
        value = self._value_for(writer, is_annotated=has_codes and only_codes)
        if has_codes:
            self._connect(readers, value, grid)
        for node, index in readers:
            node.replace_input_with(index, value)
        for output in outputs:
            _take_over(output, value)
        is_rounding = value is not x and is_operator(value.producer(), "Mul")
        return "a rounding in floats, exact in value" if is_rounding else "codes, on the edges that read it"

    def _value_for(self, writer: RoundingWriter, *, is_annotated: bool) -> ir.Value:
        """What the readers of a pair read: rounded in the graph, or by being read as codes.

        A product that is left in floats later reads values that are not rounded, but saturate as the model's.
        """
        x = writer.x
        if self._grids.get(x) == writer.grid and self._is_free(x):
            return x
        if not is_annotated:
            return writer.rounded()
        return x if x.is_graph_input() else writer.saturated()

    def _all_codes(
        self, readers: list[tuple[ir.Node, int]], wishes: Mapping[tuple[ir.Node, int], _Wish]
    ) -> bool:
        """Whether codes exist in memory and are all that is read: a sum in registers would not be rounded."""
        sums = [use for use in readers if wishes[use].is_sum]
        others = [use for use in readers if not wishes[use].is_sum]
        return all(wishes[use].all for use in others) and (bool(others) or not sums)

    def _is_free(self, x: ir.Value) -> bool:
        """Whether a value can have codes of its own: no other grid has it."""
        return (x.name or "") not in self._edges.grids and constant_of(x) is None

    def _connect(self, readers: list[tuple[ir.Node, int]], value: ir.Value, grid: CodeGrid) -> None:
        """Let the readers, and who reads what they hand on, read codes of `value`."""
        name = value.name or ""
        self._edges.grids[name] = grid
        for node, index in readers:
            node.replace_input_with(index, value)
            self._mark(node, index, name, grid)

    def _mark(self, node: ir.Node, index: int, name: str, grid: CodeGrid) -> None:
        if not self._wish(node, index, grid).any:
            return
        self._edges.uses[(node.name or "", index)] = name
        self._enter(node, index, grid)

    def _enter(self, node: ir.Node, index: int, grid: CodeGrid) -> None:
        """Note the products, sums and means that codes reach by an edge, over operators that move them."""
        if self._is_mover(node, index):
            for use in node.outputs[0].uses():
                if self._wish(use.node, use.idx, grid).any:
                    self._enter(use.node, use.idx, grid)
            return
        self._edges.readers.add(node.name or "")

    def _is_mover(self, node: ir.Node, index: int) -> bool:
        rule = self._target.rule(node.op_type) if is_operator(node, node.op_type) else None
        return rule is not None and rule.passes and index == 0 and len(node.outputs) == 1

    def _wish(self, node: ir.Node, index: int, grid: CodeGrid) -> _Wish:
        """What one edge wants of a value on a grid."""
        rule = self._target.rule(node.op_type) if is_operator(node, node.op_type) else None
        if rule is None or node.graph is not self._graph.graph or not self._target.takes(rule, grid.dtype):
            return _FLOAT
        if self._is_mover(node, index):
            if node.op_type == "Concat":
                return _FLOAT
            behind = [self._wish(use.node, use.idx, grid) for use in node.outputs[0].uses()]
            is_output = node.outputs[0].is_graph_output()
            return _Wish(
                any(w.any for w in behind), bool(behind) and not is_output and all(w.all for w in behind)
            )
        is_product = index == 0 and (node.name or "") in self._products
        if rule.weight is not None and not is_product:
            return _FLOAT
        obstacle = why_no_zero_point(node, rule) if grid.zero_point else None
        if obstacle is not None:
            self._edges.reasons[node.name or ""] = obstacle
            return _FLOAT
        if rule.weight is not None:
            return _Wish(any=True, all=True)
        if node.op_type == "Add":
            is_plain = all(value is not None and constant_of(value) is None for value in node.inputs)
            return _Wish(any=is_plain, all=False, is_sum=is_plain)
        # A mean of codes that other kernels read floats of sees what they see; alone it reads codes.
        reads = index in rule.activations
        return _Wish(any=reads, all=reads and rule.behind_product and is_mean_of_images(node))


def _take_over(output: ir.Value, value: ir.Value) -> None:
    """Make `value` the model's output that `output` was."""
    name = output.name
    output.replace_all_uses_with(value, replace_graph_outputs=True)
    output.name = None
    value.name = name
