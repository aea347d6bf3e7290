# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization after Conv, ConvTranspose, Gemm or MatMul + Add becomes part of its weights."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import absorb, constant_of, float_attribute, int_attribute, is_operator, only_consumer
from quantrt.model.passes.fold.scale_outputs import scale_matmul_add, scale_outputs

__all__ = ["fold_batch_norm"]

_DEFAULT_EPSILON = 1e-5  # of ONNX BatchNormalization


def fold_batch_norm(graph: ir.Model) -> int:
    """Fold each that is the only reader of a linear operator with constant weights; how many.

    y = (x - mean) * factor + shift      factor = scale / sqrt(var + epsilon), in float64
    """
    count = 0
    for node in list(graph.graph):
        if not is_operator(node, "BatchNormalization") or not _is_inference(node):
            continue
        producer = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if (
            producer is None
            or producer.graph is not graph.graph
            or only_consumer(producer.outputs[0]) is not node
        ):
            continue
        affine = _affine(node)
        scale = scale_matmul_add if is_operator(producer, "Add") else scale_outputs
        if affine is not None and scale(graph, producer, *affine):
            absorb(producer, node)
            count += 1
    return count


def _is_inference(node: ir.Node) -> bool:
    mode = node.attributes.get("training_mode")
    if mode is not None and (mode.is_ref() or int_attribute(node, "training_mode", 1) != 0):
        return False
    return not any(value.uses() or value.is_graph_output() for value in node.outputs[1:])


def _affine(node: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Factor and offset per channel, float64; None when a parameter is not constant."""
    arrays = [constant_of(value) for value in node.inputs[1:5]]
    if len(arrays) != 4 or any(array is None or array.ndim != 1 for array in arrays):
        return None
    scale, shift, mean, variance = (np.asarray(array, dtype=np.float64) for array in arrays)
    if not scale.shape == shift.shape == mean.shape == variance.shape:
        return None
    epsilon = float_attribute(node, "epsilon", _DEFAULT_EPSILON)
    if (variance + epsilon <= 0).any():
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not folded
        factor = scale / np.sqrt(variance + epsilon)
        return factor, shift - mean * factor
