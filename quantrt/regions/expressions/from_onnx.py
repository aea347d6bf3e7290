# SPDX-License-Identifier: Apache-2.0
"""Elementwise ONNX operators as instructions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from quantrt.ir.edit import constant_of, float_attribute, int_attribute
from quantrt.regions.expressions.builder import ExpressionBuilder, Register
from quantrt.regions.facts.facts import Facts

__all__ = ["STORED_TYPES", "emit_elementwise", "is_elementwise", "why_not_elementwise"]

Emit = Callable[[ExpressionBuilder, ir.Node, Sequence[Register | None]], Register]

STORED_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.BOOL)
"""Element types that expressions read and store."""

_BROADCASTING_OPSET = 7  # the first in which shapes alone say how inputs are broadcast
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # defaults of ONNX Selu
_GELU_CUBIC = 0.044715  # of the tanh form: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016


def is_elementwise(node: ir.Node) -> bool:
    """Whether a node is of an operator that this file knows."""
    return node.domain in ("", "ai.onnx") and node.op_type in _EMITTERS


def why_not_elementwise(node: ir.Node, facts: Facts) -> str | None:
    """Why a node cannot be instructions of an expression; None when it can."""
    if not is_elementwise(node):
        return "the operator is not elementwise"
    if any(value.name and facts.is_read(value) for value in node.outputs[1:]):
        return "it has a second output"
    if facts.opset < _BROADCASTING_OPSET and len(node.inputs) > 1:
        return f"opset {facts.opset} broadcasts by attributes"
    if not any(facts.is_activation(value) for value in node.inputs):
        return "it reads constants alone"
    for value in (*node.inputs, node.outputs[0]):
        if value is None:
            continue
        if value.name in facts.host:
            return f"'{value.name}' lives on the CPU"
        is_exponent = node.op_type == "Pow" and value is node.inputs[1] and _is_number(value)
        if value.dtype not in STORED_TYPES and not is_exponent:
            kind = "unknown" if value.dtype is None else value.dtype.name.lower()
            return f"'{value.name}' is of type {kind}"
    return "a number adds an axis to its result" if _adds_axis(node, facts) else None


def emit_elementwise(builder: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    """The register of a node's result; `args` are those of its inputs, None for an absent one."""
    return _EMITTERS[node.op_type](builder, node, args)


def _adds_axis(node: ir.Node, facts: Facts) -> bool:
    """Whether a constant of one element has more axes than every other input, which a number has not."""
    ranks = [0]
    added = [0]
    for value in node.inputs:
        array = constant_of(value)
        if array is not None and array.size == 1:
            added.append(array.ndim)
        elif value is not None:
            ranks.append(len(facts.sizes.shape(value) or ()))
    return max(added) > max(ranks)


def _is_number(value: ir.Value | None) -> bool:
    array = constant_of(value)
    return array is not None and array.size == 1


def _given(args: Sequence[Register | None]) -> list[Register]:
    return [arg for arg in args if arg is not None]


def _plain(op: str) -> Emit:
    return lambda b, node, args: b.op(op, *_given(args))


def _folded(op: str) -> Emit:
    return lambda b, node, args: functools.reduce(lambda x, y: b.op(op, x, y), _given(args))


def _mean(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    return b.op("div", _folded("add")(b, node, args), b.const(len(_given(args))))


def _relu(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    return b.op("max", *_given(args), b.const(0.0))


def _leaky_relu(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    return _prelu(b, node, (x, b.const(float_attribute(node, "alpha", 0.01))))


def _prelu(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    x, slope = _given(args)
    return b.op("where", b.op("lt", x, b.const(0.0)), b.op("mul", slope, x), x)


def _elu(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    return _below_zero(b, x, _exponential(b, x, float_attribute(node, "alpha", 1.0)))


def _selu(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    bent = _below_zero(b, x, _exponential(b, x, float_attribute(node, "alpha", _SELU_ALPHA)))
    return b.op("mul", b.const(float_attribute(node, "gamma", _SELU_GAMMA)), bent)


def _celu(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    alpha = float_attribute(node, "alpha", 1.0)
    return _below_zero(b, x, _exponential(b, b.op("div", x, b.const(alpha)), alpha))


def _exponential(b: ExpressionBuilder, x: Register, alpha: float) -> Register:
    return b.op("mul", b.const(alpha), b.op("sub", b.op("exp", x), b.const(1.0)))


def _below_zero(b: ExpressionBuilder, x: Register, bent: Register) -> Register:
    return b.op("where", b.op("lt", x, b.const(0.0)), bent, x)


def _thresholded_relu(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    above = b.op("gt", x, b.const(float_attribute(node, "alpha", 1.0)))
    return b.op("where", above, x, b.const(0.0))


def _hard_sigmoid(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    return _ramp(b, x, float_attribute(node, "alpha", 0.2), float_attribute(node, "beta", 0.5))


def _hard_swish(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    return b.op("mul", x, _ramp(b, x, 1 / 6, 0.5))


def _ramp(b: ExpressionBuilder, x: Register, alpha: float, beta: float) -> Register:
    line = b.op("add", b.op("mul", b.const(alpha), x), b.const(beta))
    return b.op("max", b.const(0.0), b.op("min", b.const(1.0), line))


def _softsign(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    return b.op("div", x, b.op("add", b.const(1.0), b.op("abs", x)))


def _mish(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    return b.op("mul", x, b.op("tanh", b.op("softplus", x)))


def _swish(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    alpha = float_attribute(node, "alpha", 1.0)
    return b.op("mul", x, b.op("sigmoid", x if alpha == 1.0 else b.op("mul", b.const(alpha), x)))


def _gelu(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    attribute = node.attributes.get("approximate")
    if attribute is not None and attribute.as_string() == "tanh":
        cube = b.op("mul", b.op("mul", x, x), x)
        inner = b.op("add", x, b.op("mul", b.const(_GELU_CUBIC), cube))
        share = b.op("tanh", b.op("mul", b.const(math.sqrt(2 / math.pi)), inner))
    else:
        share = b.op("erf", b.op("mul", x, b.const(math.sqrt(0.5))))
    return b.op("mul", b.op("mul", b.const(0.5), x), b.op("add", b.const(1.0), share))


def _clip(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    x, low, high = (*args, None, None)[:3]
    if "min" in node.attributes:
        low = b.const(float_attribute(node, "min", -math.inf))
    if "max" in node.attributes:
        high = b.const(float_attribute(node, "max", math.inf))
    result = _given([x])[0]
    if low is not None:
        result = b.op("max", result, low)
    return result if high is None else b.op("min", result, high)


def _cast(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    if int_attribute(node, "to", 0) != ir.DataType.BOOL.value:
        return x
    return b.op("not", b.op("eq", x, b.const(0.0)))


def _is_nan(b: ExpressionBuilder, node: ir.Node, args: Sequence[Register | None]) -> Register:
    (x,) = _given(args)
    return b.op("not", b.op("eq", x, x))


_EMITTERS: Mapping[str, Emit] = {
    "Abs": _plain("abs"),
    "Add": _plain("add"),
    "And": _plain("and"),
    "Cast": _cast,
    "Ceil": _plain("ceil"),
    "Celu": _celu,
    "Clip": _clip,
    "Cos": _plain("cos"),
    "Div": _plain("div"),
    "Elu": _elu,
    "Equal": _plain("eq"),
    "Erf": _plain("erf"),
    "Exp": _plain("exp"),
    "Floor": _plain("floor"),
    "Gelu": _gelu,
    "Greater": _plain("gt"),
    "GreaterOrEqual": _plain("ge"),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "IsNaN": _is_nan,
    "LeakyRelu": _leaky_relu,
    "Less": _plain("lt"),
    "LessOrEqual": _plain("le"),
    "Log": _plain("log"),
    "Max": _folded("max"),
    "Mean": _mean,
    "Min": _folded("min"),
    "Mish": _mish,
    "Mul": _plain("mul"),
    "Neg": _plain("neg"),
    "Not": _plain("not"),
    "Or": _plain("or"),
    "PRelu": _prelu,
    "Pow": _plain("pow"),
    "Reciprocal": _plain("reciprocal"),
    "Relu": _relu,
    "Round": _plain("rint"),
    "Selu": _selu,
    "Sigmoid": _plain("sigmoid"),
    "Sign": _plain("sign"),
    "Sin": _plain("sin"),
    "Softplus": _plain("softplus"),
    "Softsign": _softsign,
    "Sqrt": _plain("sqrt"),
    "Sub": _plain("sub"),
    "Sum": _folded("add"),
    "Swish": _swish,
    "Tanh": _plain("tanh"),
    "ThresholdedRelu": _thresholded_relu,
    "Where": _plain("where"),
    "Xor": _plain("xor"),
}
"""How each operator is written; `max` and `min` hand on NaN, as ONNX's do."""
