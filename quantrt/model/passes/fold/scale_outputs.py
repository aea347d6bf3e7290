# SPDX-License-Identifier: Apache-2.0
"""Change a linear operator's constant weights so that its output is scaled and shifted per channel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import (
    constant_of,
    float_attribute,
    int_attribute,
    is_operator,
    only_consumer,
    set_constant_input,
)

__all__ = ["scale_matmul_add", "scale_outputs"]


def scale_outputs(graph: ir.Model, node: ir.Node, factor: np.ndarray, offset: np.ndarray) -> bool:
    """Make `node` compute y * factor + offset, the channel being axis 1 of y; whether it could be done.

    Args:
        node: Conv, ConvTranspose or Gemm with constant weight and bias, or none.
        factor, offset: float64, shape [C] or [1].
    """
    weight = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None or weight.dtype.kind != "f" or not is_operator(node, "Conv", "ConvTranspose", "Gemm"):
        return False
    channels = _channel_factors(node, weight, factor)
    bias = _bias(node, _channel_count(node, weight)) if channels is not None else None
    if channels is None or bias is None or offset.shape not in (bias.shape, (1,)):
        return False
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not folded
        scaled = (weight.astype(np.float64) * channels).astype(weight.dtype)
        shifted = (bias * factor + offset).astype(weight.dtype)
    if not (np.isfinite(scaled).all() and np.isfinite(shifted).all()):
        return False
    set_constant_input(graph, node, 1, scaled, f"{node.name}.weight")
    set_constant_input(graph, node, 2, shifted, f"{node.name}.bias")
    if is_operator(node, "Gemm"):
        node.attributes["beta"] = ir.AttrFloat32("beta", 1.0)
    return True


def scale_matmul_add(graph: ir.Model, add: ir.Node, factor: np.ndarray, offset: np.ndarray) -> bool:
    """The same for Add(MatMul(x, weight), bias) of rank 2 with constant weight [K, C] and bias [C] or [1]."""
    found = _product_and_bias(graph, add)
    if found is None:
        return False
    matmul, side, weight, bias = found
    if factor.shape != weight.shape[1:] or bias.shape not in (factor.shape, (1,)):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (weight.astype(np.float64) * factor).astype(weight.dtype)
        shifted = (bias.astype(np.float64) * factor + offset).astype(bias.dtype)
    if not (np.isfinite(scaled).all() and np.isfinite(shifted).all()):
        return False
    set_constant_input(graph, matmul, 1, scaled, f"{matmul.name}.weight")
    set_constant_input(graph, add, 1 - side, shifted, f"{add.name}.bias")
    return True


def _product_and_bias(graph: ir.Model, add: ir.Node) -> tuple[ir.Node, int, np.ndarray, np.ndarray] | None:
    """The MatMul of rank 2 that `add` adds a constant to, its side, its constant weight, and the bias."""
    for side, product in enumerate(add.inputs[:2]):
        matmul = product.producer() if product is not None else None
        if product is None or matmul is None or not is_operator(matmul, "MatMul"):
            continue
        if matmul.graph is not graph.graph or len(add.inputs) != 2 or only_consumer(product) is not add:
            continue
        weight, bias = constant_of(matmul.inputs[1]), constant_of(add.inputs[1 - side])
        if weight is None or bias is None or weight.ndim != 2 or weight.dtype.kind != "f":
            continue
        if product.shape is not None and len(product.shape) == 2:
            return matmul, side, weight, bias
    return None


def _channel_count(node: ir.Node, weight: np.ndarray) -> int:
    if is_operator(node, "ConvTranspose"):
        return int(weight.shape[1]) * int_attribute(node, "group", 1)
    if is_operator(node, "Gemm") and not int_attribute(node, "transB", 0):
        return int(weight.shape[1])
    return int(weight.shape[0])


def _channel_factors(node: ir.Node, weight: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """The factor, shaped to multiply `weight`; None when the shapes do not fit."""
    rank = 2 if is_operator(node, "Gemm") else 3
    if weight.ndim < rank or (is_operator(node, "Gemm") and weight.ndim != rank):
        return None
    count = _channel_count(node, weight)
    if factor.shape not in ((count,), (1,)):
        return None
    factor = np.broadcast_to(factor, (count,))
    if is_operator(node, "Gemm"):
        return factor[:, None] if int_attribute(node, "transB", 0) else factor[None, :]
    spatial = (1,) * (weight.ndim - 2)
    if is_operator(node, "Conv"):
        return factor.reshape(count, 1, *spatial)
    # ConvTranspose: [C_in, C_out / group, ...]; output channel g * C_out/group + j belongs to input group g.
    group = int_attribute(node, "group", 1)
    if group < 1 or weight.shape[0] % group:
        return None
    by_group = factor.reshape(group, 1, -1)
    rows = np.broadcast_to(by_group, (group, weight.shape[0] // group, by_group.shape[2]))
    return rows.reshape(weight.shape[0], -1, *spatial)


def _bias(node: ir.Node, count: int) -> np.ndarray | None:
    """The bias as it is added now, float64 [count]; None when it is not constant or not per channel."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return np.zeros(count)
    bias = constant_of(node.inputs[2])
    if bias is None or bias.dtype.kind != "f":
        return None
    if is_operator(node, "Gemm"):
        if bias.size not in (1, count) or (bias.ndim > 0 and bias.shape[-1] != bias.size):
            return None
        beta = float_attribute(node, "beta", 1.0)
        return np.broadcast_to(bias.astype(np.float64).reshape(-1) * beta, (count,))
    return bias.astype(np.float64) if bias.shape == (count,) else None
