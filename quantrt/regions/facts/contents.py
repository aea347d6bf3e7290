# SPDX-License-Identifier: Apache-2.0
"""The elements of small integer tensors that are computed from shapes, with symbols for unknown sizes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute

__all__ = ["Dim", "constant_elements", "elements_of", "product", "quotient"]

Dim = int | str
"""A size, or the symbol of one; a symbol is never negative."""

_MAX_ELEMENTS = 64
_INTEGERS = (ir.DataType.INT64.value, ir.DataType.INT32.value, ir.DataType.BOOL.value)


def constant_elements(value: ir.Value | None) -> tuple[Dim, ...] | None:
    """The elements of a small integer or boolean constant."""
    if value is None or value.const_value is None or value.const_value.size > _MAX_ELEMENTS:
        return None
    array = constant_of(value)
    return (
        None if array is None or array.dtype.kind not in "iub" else tuple(int(n) for n in array.reshape(-1))
    )


def elements_of(
    node: ir.Node, inputs: Sequence[tuple[Dim, ...] | None], shape: tuple[Dim, ...] | None
) -> tuple[Dim, ...] | None:
    """The elements of a node's first output.

    Args:
        inputs: elements of its inputs.
        shape: sizes of its first input.
    """
    first = inputs[0] if inputs else None
    match node.op_type:
        case "Shape":
            start = int_attribute(node, "start", 0)
            return None if shape is None else shape[start : int_attribute(node, "end", len(shape))]
        case "Size":
            return None if shape is None else (product(shape),)
        case "Cast":
            return first if int_attribute(node, "to", 0) in _INTEGERS else None
        case "Identity" | "Unsqueeze" | "Squeeze" | "Reshape":
            return first
        case "Concat":
            return None if None in inputs else tuple(n for part in inputs if part is not None for n in part)
        case "Gather":
            return _gathered(first, inputs[1], shape)
        case "Slice":
            return _sliced(inputs, shape)
    return _computed(node.op_type, inputs)


def product(dims: Sequence[Dim]) -> Dim:
    """The product of sizes: a number, a symbol, or a symbol that names the product, such as "2*a*b"."""
    number, symbols = _factors(dims)
    if number == 0 or not symbols:
        return number
    return "*".join([str(number)] * (number != 1) + sorted(symbols.elements()))


def quotient(dims: Sequence[Dim], others: Sequence[Dim]) -> Dim | None:
    """product(dims) / product(others) where it is known to be a whole number or one product of symbols."""
    number, above = _factors(dims)
    divisor, below = _factors(others)
    if below - above or divisor == 0 or number % divisor:
        return None
    return product([number // divisor, *(above - below).elements()])


def _factors(dims: Sequence[Dim]) -> tuple[int, Counter[str]]:
    """The number and the symbols whose product the sizes' product is."""
    parts = [part for dim in dims for part in ([dim] if isinstance(dim, int) else dim.split("*"))]
    numbers = [int(part) for part in parts if isinstance(part, int) or part.isdecimal()]
    symbols = [part for part in parts if isinstance(part, str) and not part.isdecimal()]
    return math.prod(numbers), Counter(symbols)


def _gathered(
    data: tuple[Dim, ...] | None, index: tuple[Dim, ...] | None, shape: tuple[Dim, ...] | None
) -> tuple[Dim, ...] | None:
    if data is None or index is None or shape is None or len(shape) != 1:
        return None
    if not all(isinstance(n, int) and -len(data) <= n < len(data) for n in index):
        return None
    return tuple(data[n] for n in index if isinstance(n, int))


def _sliced(
    inputs: Sequence[tuple[Dim, ...] | None], shape: tuple[Dim, ...] | None
) -> tuple[Dim, ...] | None:
    data = inputs[0]
    if data is None or shape is None or len(shape) != 1 or len(inputs) < 3:
        return None
    bounds = [part[0] if part is not None and len(part) == 1 else None for part in (inputs[1], inputs[2])]
    steps = inputs[4] if len(inputs) > 4 else (1,)
    start, end = bounds
    if (
        not isinstance(start, int)
        or not isinstance(end, int)
        or steps is None
        or not isinstance(steps[0], int)
    ):
        return None
    return data[start : end : steps[0]] if steps[0] > 0 else None


def _computed(op_type: str, inputs: Sequence[tuple[Dim, ...] | None]) -> tuple[Dim, ...] | None:
    """Arithmetic, element by element, with broadcasting of single elements."""
    parts = [part for part in inputs if part is not None]
    if (
        len(parts) != len(inputs)
        or not parts
        or op_type not in ("Add", "Sub", "Mul", "Div", "Equal", "Where")
    ):
        return None
    count = max(len(part) for part in parts)
    if any(len(part) not in (1, count) for part in parts):
        return None
    rows = zip(*(part * count if len(part) == 1 else part for part in parts), strict=True)
    results = [_element(op_type, row) for row in rows]
    known = tuple(dim for dim in results if dim is not None)
    return known if len(known) == len(results) else None


def _element(op_type: str, row: tuple[Dim, ...]) -> Dim | None:
    if op_type == "Where":
        return None if isinstance(row[0], str) else row[1] if row[0] else row[2]
    a, b = row
    if op_type == "Mul":
        is_negative = any(isinstance(dim, int) and dim < 0 for dim in row)
        return None if is_negative and (isinstance(a, str) or isinstance(b, str)) else product(row)
    if op_type == "Div" and isinstance(b, int) and b == 1:
        return a
    if op_type == "Equal" and isinstance(a, str) != isinstance(b, str):
        number = b if isinstance(a, str) else a
        return 0 if isinstance(number, int) and number < 0 else None
    if isinstance(a, str) or isinstance(b, str):
        return a if op_type in ("Add", "Sub") and b == 0 else None
    match op_type:
        case "Add":
            return a + b
        case "Sub":
            return a - b
        case "Equal":
            return int(a == b)
    return int(np.trunc(a / b)) if b else None
