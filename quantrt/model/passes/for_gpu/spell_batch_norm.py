# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization that no product can take over becomes a Mul and an Add of one number per channel.

    y = x * factor + shift      factor = scale / sqrt(var + epsilon),  shift = bias - mean * factor

DenseNet's stand behind a Concat, those of pre-activation networks behind a sum: spelled out, they are
elementwise, and go into one kernel with the activation behind them.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, float_attribute, int_attribute, is_operator
from quantrt.ir.sources import SOURCES_KEY, sources_of

__all__ = ["spell_batch_norm"]

_DEFAULT_EPSILON = 1e-5  # of ONNX BatchNormalization


def spell_batch_norm(graph: ir.Model) -> int:
    """Replace each of the main graph that has constant parameters and an input of known rank; how many."""
    count = 0
    for node in list(graph.graph):
        if not is_operator(node, "BatchNormalization") or int_attribute(node, "training_mode", 0):
            continue
        x = node.inputs[0]
        affine = _affine(node)
        is_alone = not any(value.uses() or value.is_graph_output() for value in node.outputs[1:])
        if x is None or x.shape is None or len(x.shape) < 2 or affine is None or not is_alone:
            continue
        _replace(graph, node, x, *(array.reshape(-1, *[1] * (len(x.shape) - 2)) for array in affine))
        count += 1
    return count


def _affine(node: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Factor and shift per channel, of the parameters' type; None when one is not constant or not finite."""
    arrays = [constant_of(value) for value in node.inputs[1:5]]
    if len(arrays) != 4 or any(array is None or array.ndim != 1 for array in arrays):
        return None
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    if not scale.shape == bias.shape == mean.shape == variance.shape or arrays[0] is None:
        return None
    with np.errstate(all="ignore"):  # what is not finite is not replaced
        factor = scale / np.sqrt(variance + float_attribute(node, "epsilon", _DEFAULT_EPSILON))
        found = (factor.astype(arrays[0].dtype), (bias - mean * factor).astype(arrays[0].dtype))
    return found if all(np.isfinite(array).all() for array in found) else None


def _replace(graph: ir.Model, node: ir.Node, x: ir.Value, factor: np.ndarray, shift: np.ndarray) -> None:
    result = node.outputs[0]
    constants = [
        add_constant(graph, f"{node.name}.factor", factor),
        add_constant(graph, f"{node.name}.shift", shift),
    ]
    product = ir.Node("", "Mul", [x, constants[0]], name=f"{node.name}.factor")
    total = ir.Node("", "Add", [product.outputs[0], constants[1]], name=node.name)
    for made in (product, total):
        made.metadata_props[SOURCES_KEY] = "\n".join(sources_of(node))
        made.outputs[0].type = result.type
        made.outputs[0].shape = result.shape or x.shape
    product.outputs[0].name = f"{result.name}.scaled"
    graph.graph.insert_before(node, [product, total])
    result.replace_all_uses_with(total.outputs[0], replace_graph_outputs=True)
    parameters = [value for value in node.inputs[1:] if value is not None]
    graph.graph.remove(node, safe=True)
    name, result.name = result.name, None
    total.outputs[0].name = name
    for value in parameters:
        if not value.uses() and graph.graph.initializers.get(value.name or "") is value:
            del graph.graph.initializers[value.name or ""]
