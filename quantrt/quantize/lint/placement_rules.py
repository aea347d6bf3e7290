# SPDX-License-Identifier: Apache-2.0
"""Pairs that do nothing, do harm, or miss what would make them pay, whatever runtime reads the model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import is_operator
from quantrt.quantize.lint.finding import Finding, Rule
from quantrt.quantize.lint.pairs import (
    DEQUANTIZE,
    QUANTIZE,
    WEIGHTED,
    code_type,
    codes_behind,
    input_of,
    is_constant,
    numbers,
    pairs_of,
    reaches_output,
    readers_of,
    weight_index,
)
from quantrt.quantize.patterns.behind_conv import before_activation

__all__ = ["placement_findings"]

SUMS = ("Add", "AveragePool", "GlobalAveragePool", "Mul", "ReduceMean", "Sum")
"""Operators without weights that runtimes compute on codes."""

TABLES = ("Gather",)
"""Operators that read rows of a table, which may be codes."""

BIAS = 2
"""Input of a product that is its bias."""

NAMED = 3
"""Readers that a sentence names."""

GUIDE = "TensorRT documentation, Explicit Quantization, Q/DQ Layer-Placement Recommendations"

DANGLING = Rule("dangling", "advice", "remove it: nothing reads its result")
USELESS = Rule("useless", "advice", "remove both nodes: they round values and save no time", GUIDE)
REPEATED = Rule("repeated", "advice", "let its readers read the first pair, and remove this one")
DOUBLE = Rule("double", "advice", "keep one of the two grids: every further one adds its own noise")
MISMATCH = Rule("mismatch", "error", "give both nodes the same scale, zero point and axis")
ONE_SIDED = Rule("one-sided", "advice", "quantize the other input too, or neither", GUIDE)
SPLIT = Rule(
    "split", "advice", "move the pair behind it, so that it stays in the kernel of the layer before", GUIDE
)
RESIDUAL = Rule("residual", "advice", "put a pair on the other branch of the sum", GUIDE)
CONCAT = Rule("concat", "advice", "give all inputs of the Concat one scale and zero point", GUIDE)
BIAS_CODES = Rule(
    "bias", "advice", "store it as floats, or as int32 on the scale of the input times that of the weight"
)
PER_CHANNEL = Rule(
    "per-channel",
    "advice",
    "one scale for the whole activation; smooth or equalize its channels before",
    GUIDE,
)


def placement_findings(graph: ir.Graph) -> list[Finding]:
    """Every finding, in the order of the graph for each rule."""
    return [
        *_dangling(graph),
        *_useless(graph),
        *_repeated(graph),
        *_double(graph),
        *_mismatched(graph),
        *_one_sided(graph),
        *_split(graph),
        *_residual(graph),
        *_concat(graph),
        *_per_channel(graph),
        *_bias(graph),
    ]


def _finding(rule: Rule, node: ir.Node, what: str) -> Finding:
    return Finding(rule, node.name or "", node.op_type, what)


def _dangling(graph: ir.Graph) -> Iterator[Finding]:
    for node in graph:
        if not is_operator(node, QUANTIZE, DEQUANTIZE) or node.outputs[0].is_graph_output():
            continue
        if not node.outputs[0].uses():
            yield _finding(DANGLING, node, "nothing reads it")


def _useless(graph: ir.Graph) -> Iterator[Finding]:
    """Pairs in front of operators that compute in floats alone."""
    for node, pair in pairs_of(graph):
        readers = list(dict.fromkeys(reader for reader, _ in readers_of(pair.outputs[0])))
        if not readers or reaches_output(pair.outputs[0]):
            continue
        if not any(_computes_codes(each) for each in readers):
            yield _finding(USELESS, node, f"read by {_named(readers)}, in floats")


def _computes_codes(node: ir.Node) -> bool:
    """Whether an operator may run on codes: it has kernels for them, or its result is quantized again."""
    if is_operator(node, *WEIGHTED, *SUMS, *TABLES, QUANTIZE):
        return True
    return any(is_operator(reader, QUANTIZE) for out in node.outputs for reader, _ in readers_of(out))


def _repeated(graph: ir.Graph) -> Iterator[Finding]:
    """A QuantizeLinear of a value that another quantizes with the same numbers."""
    seen: dict[tuple[int, bytes, bytes], ir.Node] = {}
    for node in graph:
        scale, zero = (numbers(node, 1), numbers(node, 2)) if is_operator(node, QUANTIZE) else (None, None)
        if scale is None or node.inputs[0] is None:
            continue
        key = (id(node.inputs[0]), scale.tobytes(), b"" if zero is None else zero.tobytes())
        first = seen.setdefault(key, node)
        if first is not node:
            yield _finding(REPEATED, node, f"'{first.name}' quantizes the same value alike")


def _double(graph: ir.Graph) -> Iterator[Finding]:
    """A pair whose input was rounded to another grid before, or to the same one."""
    for node in graph:
        if not is_operator(node, QUANTIZE) or is_constant(node.inputs[0]):
            continue
        before = codes_behind(node.inputs[0])
        if before is None or is_constant(before.inputs[0]) or _joins(node.inputs[0]):
            continue
        same = all(_equal(node, before, index) for index in (1, 2))
        if same and before.outputs[0] is not node.inputs[0]:
            continue  # around an operator that moves codes: how ONNX Runtime is told to move them
        if same:
            yield _finding(REPEATED, node, f"'{before.name}' gave values on this grid already")
        else:
            yield _finding(
                DOUBLE, node, f"'{before.name}' rounded it to {_grid(before)}, this to {_grid(node)}"
            )


def _joins(value: ir.Value | None) -> bool:
    """Whether a value is made of several, over operators that move values."""
    while value is not None and (maker := value.producer()) is not None:
        if is_operator(maker, "Concat"):
            return True
        if is_operator(maker, DEQUANTIZE):
            return False
        value = maker.inputs[0]
    return False


def _mismatched(graph: ir.Graph) -> Iterator[Finding]:
    """A pair of two grids scales its values by their ratio."""
    for node, pair in pairs_of(graph):
        if any(numbers(each, 1) is None for each in (node, pair)):
            continue
        if not all(_equal(node, pair, index) for index in (1, 2)):
            yield _finding(MISMATCH, pair, f"reads {_grid(pair)}, '{node.name}' writes {_grid(node)}")


def _one_sided(graph: ir.Graph) -> Iterator[Finding]:
    """Products of codes and floats."""
    for node in graph:
        index = weight_index(node)
        if index is None:
            if is_operator(node, "MatMul"):
                sides = [codes_behind(value) is not None for value in node.inputs]
                if sides in ([True, False], [False, True]):
                    yield _finding(ONE_SIDED, node, f"input {sides.index(False)} of the product is in floats")
            continue
        weight, data = node.inputs[index], node.inputs[1 - index]
        has_codes = codes_behind(data) is not None
        if has_codes and codes_behind(weight) is None:
            yield _finding(ONE_SIDED, node, "its input is quantized, its weight is not")
        elif not has_codes and codes_behind(weight) is not None and not _is_narrow(codes_behind(weight)):
            yield _finding(ONE_SIDED, node, "its weight is quantized, its input is not")


def _is_narrow(node: ir.Node | None) -> bool:
    """Whether a weight is stored in less than 8 bits or in blocks: for its size alone."""
    kind = None if node is None or node.inputs[0] is None else node.inputs[0].dtype
    is_blocked = node is not None and "block_size" in node.attributes
    return is_blocked or (kind is not None and kind.bitwidth < 8)


def _split(graph: ir.Graph) -> Iterator[Finding]:
    """A pair between a product and what would run inside its kernel."""
    for node, pair in pairs_of(graph):
        maker = node.inputs[0].producer() if node.inputs[0] is not None else None
        for reader, _ in pair.outputs[0].uses():
            if is_operator(maker, *WEIGHTED) and is_operator(reader, "BatchNormalization", "Relu", "Clip"):
                made = maker.name if maker is not None else ""
                yield _finding(SPLIT, node, f"stands between '{made}' and '{reader.name}' ({reader.op_type})")


def _residual(graph: ir.Graph) -> Iterator[Finding]:
    """A sum of a convolution of codes and a branch in floats: the convolution has to write floats."""
    for node in graph:
        if not is_operator(node, "Add") or any(is_constant(value) for value in node.inputs):
            continue
        branches = [(value, codes_behind(value) is not None) for value in node.inputs]
        makers = [_convolution_of_codes(value) for value, _ in branches]
        for index in (0, 1):
            if makers[index] is not None and not any(is_codes for _, is_codes in branches):
                conv = makers[index]
                name = "" if conv is None else conv.name
                yield _finding(RESIDUAL, node, f"adds floats to '{name}', which reads codes")
                break


def _convolution_of_codes(value: ir.Value | None) -> ir.Node | None:
    before = before_activation(value)
    maker = None if before is None else before.producer()
    if maker is None or not is_operator(maker, "Conv"):
        return None
    return maker if codes_behind(maker.inputs[0]) is not None else None


def _concat(graph: ir.Graph) -> Iterator[Finding]:
    for node in graph:
        sources = [codes_behind(value) for value in node.inputs] if is_operator(node, "Concat") else []
        known = [each for each in sources if each is not None and numbers(each, 1) is not None]
        if len(known) < 2 or len(known) < len(sources):
            continue
        if not all(_equal(known[0], each, index) for each in known for index in (1, 2)):
            scales = {
                f"{float(found.reshape(-1)[0]):.4g}"
                for each in known
                if (found := numbers(each, 1)) is not None
            }
            yield _finding(CONCAT, node, f"its inputs have the scales {', '.join(sorted(scales))}")


def _per_channel(graph: ir.Graph) -> Iterator[Finding]:
    for node in graph:
        if not is_operator(node, QUANTIZE) or is_constant(node.inputs[0]):
            continue
        scale = numbers(node, 1)
        if scale is not None and scale.size > 1:
            yield _finding(PER_CHANNEL, node, f"an activation with {scale.size} scales")


def _bias(graph: ir.Graph) -> Iterator[Finding]:
    """Biases in other codes than those of the sums they are added to."""
    for node in graph:
        bias = codes_behind(input_of(node, BIAS)) if is_operator(node, *WEIGHTED) else None
        sides = [codes_behind(node.inputs[index]) for index in (0, 1)] if bias is not None else []
        if bias is None or not is_constant(bias.outputs[0]):
            continue
        kind, scale = code_type(bias), numbers(bias, 1)
        scales = [None if side is None else numbers(side, 1) for side in sides]
        if kind != ir.DataType.INT32:
            name = "unknown" if kind is None else kind.name.lower()
            yield _finding(BIAS_CODES, node, f"its bias has codes of type {name}, its sums of int32")
        elif scale is not None and scales[0] is not None and scales[1] is not None:
            product = (scales[0] * scales[1]).reshape(-1)
            if scale.size not in (1, product.size) or not np.allclose(scale.reshape(-1), product, rtol=1e-4):
                yield _finding(BIAS_CODES, node, "its bias is on another scale than input times weight")


def _equal(one: ir.Node, other: ir.Node, index: int) -> bool:
    """Whether two nodes have equal scales (index 1) or zero points (index 2); absent is 0.

    One of all channels is equal to the same one for each of them.
    """
    a, b = numbers(one, index), numbers(other, index)
    if a is None or b is None:
        present = a if b is None else b
        both_absent = all(input_of(node, index) is None for node in (one, other))
        return both_absent or (index == 2 and present is not None and not present.astype(np.float64).any())
    is_comparable = a.size == b.size or 1 in (a.size, b.size)
    return bool(is_comparable and np.all(a.reshape(-1) == b.reshape(-1)))


def _grid(node: ir.Node) -> str:
    scale, zero = numbers(node, 1), numbers(node, 2)
    if scale is None:
        return "a computed scale"
    if scale.size > 1:
        return f"{scale.size} scales"
    offset = 0.0 if zero is None else float(zero.reshape(()))
    return f"scale {float(scale.reshape(())):.4g}" + (f" with zero point {offset:g}" if offset else "")


def _named(nodes: list[ir.Node]) -> str:
    texts = [f"'{node.name}' ({node.op_type})" for node in nodes[:NAMED]]
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return ", ".join(texts) + more
