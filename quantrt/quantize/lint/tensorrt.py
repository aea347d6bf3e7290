# SPDX-License-Identifier: Apache-2.0
"""What TensorRT's documents demand of a model with Q/DQ nodes; checked on the graph, without TensorRT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import int_attribute, is_operator
from quantrt.quantize.lint.finding import Finding, Level, Rule
from quantrt.quantize.lint.pairs import (
    DEQUANTIZE,
    QUANTIZE,
    WEIGHTED,
    code_type,
    input_of,
    is_constant,
    numbers,
    pairs_of,
    reaches_output,
    readers_of,
    weight_index,
)
from quantrt.quantize.lint.placement_rules import placement_findings

__all__ = ["tensorrt_findings"]

OPERATORS = "onnx-tensorrt, docs/operators.md, Supported ONNX Operators"
SCHEMES = "TensorRT documentation, Quantization Schemes"
ONNX_SUPPORT = "TensorRT documentation, Explicit Quantization, ONNX Support"
LAYER = "TensorRT API reference, IQuantizeLayer and IDequantizeLayer"
PLACEMENT = "TensorRT documentation, Explicit Quantization, Q/DQ Layer-Placement Recommendations"

OPERATOR = Rule(
    "operator", "error", "write it as DequantizeLinear -> float operator -> QuantizeLinear", OPERATORS
)
ZERO_POINT = Rule("zero-point", "error", "quantize symmetrically: int8, every zero point 0", SCHEMES)
TYPE = Rule("type", "error", "int8 codes, or FP8 E4M3, or 4 bits for weights alone", SCHEMES)
SCALE = Rule("scale", "error", "a constant positive scale in an initializer", LAYER)
PER_TENSOR = Rule("per-tensor", "error", "one scale for the whole activation", SCHEMES)
WEIGHT_AXIS = Rule("weight-axis", "error", "scales along the output channels of the weight", ONNX_SUPPORT)
BIAS = Rule("quantized-bias", "error", "leave the bias in floats", OPERATORS)
LOW_BITS = Rule("weight-only", "error", "4 bits are for weights; int8 or FP8 for activations", SCHEMES)
OUTPUT = Rule("output", "advice", "quantize inputs; leave what is read in floats in floats", PLACEMENT)

REFUSED = (
    "ConvInteger",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
)
"""Standard operators that onnx-tensorrt does not read."""

FOREIGN_DOMAIN = "com.microsoft"
FOREIGN = ("QAttention", "QGemm", "MatMulNBits", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
"""Quantized operators of ONNX Runtime's own; so are all whose names begin with QLinear."""

EIGHT_BITS = (ir.DataType.INT8, ir.DataType.FLOAT8E4M3FN)
FOUR_BITS = (ir.DataType.INT4, ir.DataType.FLOAT4E2M1)

BIAS_INDEX = 2

SEVERE = ("mismatch",)
"""Rules of placement that stay errors here."""


def tensorrt_findings(graph: ir.Graph) -> list[Finding]:
    """What TensorRT refuses, then what its guide advises against."""
    found = [*_operators(graph)]
    for node in graph:
        if is_operator(node, QUANTIZE, DEQUANTIZE):
            found += _node_findings(node)
        elif is_operator(node, *WEIGHTED):
            found += _weight_axis(node)
    found += _outputs(graph)
    known = {finding.rule.name for finding in found}
    for finding in placement_findings(graph):
        if finding.rule.name == "per-channel" and PER_TENSOR.name in known:
            continue
        if finding.rule.name == "bias" and BIAS.name in known:
            continue
        level: Level = "error" if finding.rule.name in SEVERE else "advice"
        found.append(replace(finding, rule=replace(finding.rule, level=level)))
    return sorted(found, key=lambda finding: finding.rule.level != "error")


def _finding(rule: Rule, node: ir.Node, what: str) -> Finding:
    return Finding(rule, node.name or "", node.op_type, what)


def _operators(graph: ir.Graph) -> Iterator[Finding]:
    for node in graph:
        is_foreign = node.domain == FOREIGN_DOMAIN and (
            node.op_type in FOREIGN
            or node.op_type.startswith("QLinear")
            or node.op_type in (QUANTIZE, DEQUANTIZE)
        )
        if is_foreign or is_operator(node, *REFUSED):
            yield _finding(OPERATOR, node, f"{node.op_type} is not among the operators it reads")


def _node_findings(node: ir.Node) -> Iterator[Finding]:
    """Findings of one QuantizeLinear or DequantizeLinear."""
    kind, constant = code_type(node), is_constant(node.inputs[0])
    if kind == ir.DataType.INT32:
        yield _finding(BIAS, node, "int32 codes")
        return
    if kind in FOUR_BITS:
        if not constant:
            yield _finding(LOW_BITS, node, f"an activation in {kind.name.lower()}")
    elif kind not in EIGHT_BITS:
        yield _finding(TYPE, node, f"codes of type {'unknown' if kind is None else kind.name.lower()}")
    yield from _scale_findings(node)
    zero = numbers(node, 2)
    if zero is None and input_of(node, 2) is not None:
        yield _finding(ZERO_POINT, node, "its zero point is computed")
    elif zero is not None and zero.astype(np.float64).any():
        yield _finding(ZERO_POINT, node, f"zero point {_first_but_zero(zero):g}")
    if constant and any(index == BIAS_INDEX for _, index in _products_of(node)):
        yield _finding(BIAS, node, "a bias in codes")


def _scale_findings(node: ir.Node) -> Iterator[Finding]:
    scale = numbers(node, 1)
    if scale is None:
        yield _finding(SCALE, node, "its scale is computed")
        return
    values = scale.astype(np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        yield _finding(SCALE, node, f"a scale of {values[~(values > 0) | ~np.isfinite(values)].flat[0]:g}")
    is_blocked = int_attribute(node, "block_size", 0) > 0
    if scale.size > 1 and not is_constant(node.inputs[0]) and not is_blocked:
        yield _finding(PER_TENSOR, node, f"an activation with {scale.size} scales")


def _first_but_zero(zero: np.ndarray) -> float:
    values = zero.astype(np.float64).reshape(-1)
    return float(values[np.flatnonzero(values)[0]])


def _products_of(node: ir.Node) -> Iterator[tuple[ir.Node, int]]:
    """Products that read a constant, and by which input."""
    for reader, index in readers_of(node.outputs[0]):
        if is_operator(reader, *WEIGHTED):
            yield reader, index


def _weight_axis(node: ir.Node) -> Iterator[Finding]:
    index = weight_index(node)
    maker = None if index is None else _first_of(node.inputs[index])
    scale = None if maker is None else numbers(maker, 1)
    if maker is None or scale is None or scale.size == 1 or int_attribute(maker, "block_size", 0):
        return
    # A weight that is moved behind its DequantizeLinear has its axis moved too: only a direct one is told.
    rank = None if node.inputs[index or 0] is None else len(node.inputs[index or 0].shape or ())  # type: ignore[union-attr]
    axis = int_attribute(maker, "axis", 1)
    want = _channel_axis(node, index or 0, rank or 0)
    if rank and axis % rank != want:
        yield _finding(WEIGHT_AXIS, node, f"its weight has scales along axis {axis % rank}, not {want}")


def _first_of(value: ir.Value | None) -> ir.Node | None:
    maker = None if value is None else value.producer()
    return maker if is_operator(maker, DEQUANTIZE) else None


def _channel_axis(node: ir.Node, index: int, rank: int) -> int:
    """The axis of output channels of a weight."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        is_turned = int_attribute(node, "transB" if index == 1 else "transA", 0) != 0
        return 0 if is_turned == (index == 1) else 1
    return rank - 1 if index == 1 else rank - 2


def _outputs(graph: ir.Graph) -> Iterator[Finding]:
    """Pairs that round what a product makes for readers of floats, or for an output of the model."""
    for node, pair in pairs_of(graph):
        value = node.inputs[0]
        if value is None or not is_operator(value.producer(), *WEIGHTED):
            continue
        if reaches_output(pair.outputs[0]) and not any(True for _ in readers_of(pair.outputs[0])):
            yield _finding(OUTPUT, node, "rounds an output of the model")
