# SPDX-License-Identifier: Apache-2.0
"""Shapes of results from shapes of inputs, with symbols for sizes that are not known."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from quantrt.ir.edit import int_attribute, order_of
from quantrt.regions.facts.contents import Dim, quotient

__all__ = ["SAME_AS_FIRST", "Shape", "broadcast", "shape_after"]

Shape = tuple[Dim, ...]

SAME_AS_FIRST = frozenset(
    "Abs Acos Asin Atan Cast Ceil Celu Clip Cos Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Hardmax "
    "Identity IsInf IsNaN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization Mish Neg Not PRelu "
    "QuantizeLinear DequantizeLinear RMSNormalization Reciprocal Relu Round Selu Sigmoid Sign Sin Softmax "
    "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu BatchNormalization InstanceNormalization "
    "GroupNormalization SimplifiedLayerNormalization".split()
)
BROADCASTING = frozenset(
    "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where "
    "Xor".split()
)

_ENDLESS = 1 << 31  # as an end: up to the last element


def shape_after(
    node: ir.Node, shapes: Sequence[Shape | None], elements: Sequence[Shape | None]
) -> Shape | None:
    """The shape of the first output of a standard operator; None where there is no rule or no knowledge.

    Args:
        shapes: of the inputs.
        elements: of those inputs whose elements are known.
    """
    if not shapes:
        return None
    source = shapes[0]
    if node.op_type in SAME_AS_FIRST:
        return source
    if node.op_type in BROADCASTING:
        return broadcast(shapes)
    if node.op_type == "ConstantOfShape":
        return elements[0]
    if node.op_type == "Range":
        return elements[1] if elements[0] == (0,) and elements[2] == (1,) and elements[1] != (0,) else None
    if source is None:
        return None
    match node.op_type:
        case "Expand":
            return broadcast([source, elements[1]])
        case "Reshape":
            return _reshaped(source, elements[1], keeps_zero=bool(int_attribute(node, "allowzero", 0)))
        case "Transpose":
            return _transposed(node, source)
        case "MatMul":
            return _multiplied(source, shapes[1])
        case "Slice":
            return _sliced(source, elements)
        case "Pad":
            return _padded(source, elements)
    return None


def broadcast(shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape that all of them broadcast to; None where sizes that are not known to be equal meet."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) != len(shapes) or not known:
        return None
    rank = max(len(shape) for shape in known)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        dims = {shape[axis] for shape in known if len(shape) >= -axis} - {1}
        numbers: set[Dim] = {dim for dim in dims if isinstance(dim, int)}
        if len(numbers) == 1:
            dims = numbers
        if len(dims) > 1:
            return None
        result.append(dims.pop() if dims else 1)
    return tuple(result)


def _transposed(node: ir.Node, source: Shape) -> Shape | None:
    axes = order_of(node) or range(len(source))[::-1]
    return tuple(source[axis] for axis in axes) if len(axes) == len(source) else None


def _multiplied(a: Shape, b: Shape | None) -> Shape | None:
    if b is None or len(a) < 2 or len(b) < 2:
        return None
    batch: Shape | None = ()
    if len(a) > 2 or len(b) > 2:
        batch = broadcast([a[:-2], b[:-2]])
    return None if batch is None else (*batch, a[-2], b[-1])


def _sliced(source: Shape, elements: Sequence[Shape | None]) -> Shape | None:
    """Known where bounds are constants; part of an unknown size gets a symbol that says which part."""
    given: list[list[int]] = []
    for part in elements[1:]:
        numbers = [n for n in part if isinstance(n, int)] if part is not None else []
        if part is None or len(numbers) != len(part):
            return None
        given.append(numbers)
    if len(given) < 2:
        return None
    starts, ends = given[0], given[1]
    axes = given[2] if len(given) > 2 else list(range(len(starts)))
    steps = given[3] if len(given) > 3 else [1] * len(starts)
    result = list(source)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        size = source[axis]
        if isinstance(size, int):
            result[axis] = len(range(size)[start:end:step]) if step > 0 else f"{size}[{start}:{end}:{step}]"
        elif start != 0 or end < _ENDLESS or step != 1:
            result[axis] = f"{size}[{start}:{end}:{step}]"
    return tuple(result)


def _padded(source: Shape, elements: Sequence[Shape | None]) -> Shape | None:
    pads = elements[1] if len(elements) > 1 else None
    if pads is None or len(pads) != 2 * len(source) or len(elements) > 3:
        return None
    result: list[Dim] = []
    for axis, size in enumerate(source):
        begin, end = pads[axis], pads[axis + len(source)]
        if not isinstance(begin, int) or not isinstance(end, int):
            return None
        if begin or end:
            if not isinstance(size, int):
                return None
            size += begin + end
        result.append(size)
    return tuple(result)


def _reshaped(source: Shape, target: Shape | None, *, keeps_zero: bool) -> Shape | None:
    if target is None:
        return None
    dims: list[Dim] = []
    for axis, dim in enumerate(target):
        if dim == 0 and not keeps_zero:
            if axis >= len(source):
                return None
            dim = source[axis]
        dims.append(dim)
    if -1 not in dims:
        return tuple(dims)
    others = [dim for dim in dims if dim != -1]
    rest = quotient(source, others)
    return (
        None if rest is None or len(others) != len(dims) - 1 else tuple(rest if d == -1 else d for d in dims)
    )
