# SPDX-License-Identifier: Apache-2.0
"""Models older than opset 13 are raised to it, the first with per-channel QuantizeLinear."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnx.version_converter
import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator
from quantrt.ir.shapes import ONNX_ERRORS
from quantrt.ir.split import split_weights
from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.passes.spell.lift_constants import lift_constants

__all__ = ["CONVERTIBLE", "TARGET_OPSET", "convert_opset"]

logger = logging.getLogger(__name__)

TARGET_OPSET = 13
_RESIZE_WITH_MODES = 11  # from here on Resize says how it maps coordinates

CONVERTIBLE = frozenset(
    """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Celu
    Clip Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div
    Dropout Einsum Elu Equal Erf Exp Expand Flatten Floor GRU Gather GatherElements GatherND Gemm
    GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual HardSigmoid Identity InstanceNormalization IsNaN
    LRN LSTM LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization MatMul Max MaxPool Mean
    MeanVarianceNormalization Min Mod Mul Neg NonZero Not OneHot Or PRelu Pad Pow QuantizeLinear Range
    Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Reshape Resize Round ScatterND Selu Shape Sigmoid Sign Sin Sinh Size Slice Softmax
    Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh Tile TopK Transpose Unsqueeze Upsample
    Where
    """.split()
)
"""Operators whose conversion is tested to leave the result as it was."""

_UNVERSIONED = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Of ONNX Runtime's own, in the default domain of older opsets too; the converter leaves them as they are."""


def convert_opset(graph: ir.Model) -> int:
    """Raise `graph` to opset 13 with ONNX's converter; 1 if that was done, 0 if not.

    A graph is left at its opset when it is new enough, or has control flow or an operator whose conversion
    is not known to be exact; per-channel quantization is then not possible.
    """
    old = graph.opset_imports.get("", TARGET_OPSET)
    if old >= TARGET_OPSET:
        return 0
    obstacle = _obstacle(graph, old)
    if obstacle is not None:
        logger.debug("opset %d kept: %s", old, obstacle)
        return 0
    protobuf, _ = split_weights(graph)
    try:
        proto = onnx.version_converter.convert_version(onnx.ModelProto.FromString(protobuf), TARGET_OPSET)
    except ONNX_ERRORS as error:
        logger.debug("opset %d kept: %s", old, error)
        return 0
    name_nodes(proto.graph)
    converted = ir.from_proto(proto)
    if old < _RESIZE_WITH_MODES:
        _keep_coordinates(graph, converted)
    _take_over(graph, converted)
    lift_constants(graph)  # the converter writes former attributes as Constant nodes
    return 1


def _obstacle(graph: ir.Model, opset: int) -> str | None:
    for node in graph.graph:
        if node.domain not in ("", "ai.onnx"):
            continue  # the converter leaves what is not the standard's
        if node.op_type not in CONVERTIBLE and node.op_type not in _UNVERSIONED:
            return f"no tested conversion of {node.op_type}"
        if opset < _RESIZE_WITH_MODES and is_operator(node, "Resize", "Upsample") and _rounding(node) is None:
            return f"{node.op_type} enlarges and shrinks at once, or by a computed factor"
        if is_operator(node, "BatchNormalization") and not int_attribute(node, "spatial", 1):
            return "BatchNormalization has statistics for every pixel"
    return None


def _rounding(node: ir.Node) -> str | None:
    """How ONNX Runtime rounds in a Resize before opset 11: down to enlarge, up to shrink; None for both."""
    scales = constant_of(node.inputs[1]) if len(node.inputs) == 2 else _written_scales(node)
    if scales is None:
        return None
    if (scales >= 1).all():
        return "floor"
    return "ceil" if (scales <= 1).all() else None


def _written_scales(node: ir.Node) -> np.ndarray | None:
    """Those of an Upsample before opset 9, an attribute."""
    scales = node.attributes.get("scales")
    return None if scales is None else np.array(scales.as_floats(), np.float32)


def _keep_coordinates(old: ir.Model, new: ir.Model) -> None:
    """Say in each Resize what it meant before opset 11; the converter leaves the new default, half_pixel."""
    before = [node for node in old.graph if is_operator(node, "Resize", "Upsample")]
    after = [node for node in new.graph if is_operator(node, "Resize")]  # an Upsample of 8 has lost its name
    for node, was in zip(after, before, strict=True):
        node.attributes["coordinate_transformation_mode"] = ir.AttrString(
            "coordinate_transformation_mode", "asymmetric"
        )
        node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", _rounding(was) or "")


def _take_over(graph: ir.Model, converted: ir.Model) -> None:
    """Put the converted graph in the place of `graph`'s, with its weights, declared types and sources."""
    old, new = graph.graph, converted.graph
    for name, value in new.initializers.items():
        if name in old.initializers:
            value.const_value = old.initializers[name].const_value
        elif value.const_value is not None:
            value.const_value = ir.Tensor(
                np.array(value.const_value.numpy()), value.const_value.dtype, name=name
            )
    for mine, theirs in zip((*new.inputs, *new.outputs), (*old.inputs, *old.outputs), strict=True):
        mine.type, mine.shape = theirs.type, theirs.shape
    records = {node.name: node.metadata_props for node in old}
    for node in new:
        node.metadata_props.update(records.get(node.name, {}))
    graph.graph = new
