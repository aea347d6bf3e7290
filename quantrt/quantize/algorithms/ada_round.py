# SPDX-License-Identifier: Apache-2.0
"""Weights rounded by what their layers make of real inputs: the problem of AdaRound, by coordinate descent.

    minimize over codes q   (q - w / s)' H (q - w / s),   H = E[x x'] + damping,   |q - nearest(w / s)| <= 1

Rounding each weight to its nearest code is best only where inputs are independent; where they are correlated,
errors of a row's weights can cancel (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training
Quantization", arXiv 2004.10568, section 3.2). That paper relaxes the choice and descends by gradients (3.3);
here each code in turn takes the best of its values while all others stay, as in QuantEase (Behdin et al.
2023, arXiv 2309.01885): nothing is drawn or tuned, and from the nearest codes on no step makes the error
larger. The columns of a weight have nothing to do with each other and are rounded together.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator, only_consumer
from quantrt.quantize.algorithms.layer_inputs import Batches, as_matrix, from_matrix, observe_grams
from quantrt.quantize.qparams import QuantizedTensor
from quantrt.quantize.quantized_model import Use

__all__ = ["round_adaptively", "round_codes"]

log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]

WEIGHT = 1
"""The input of a layer that is its weight."""
DAMPING = 0.01
"""Of the mean of H's diagonal, added to it as in GPTQ: what samples do not show is not free to err."""
SWEEPS = 8
"""Times that every code is looked at; after these hardly any changes."""
BLOCK = 128
"""Inputs between two updates of the gradient of all, as in GPTQ."""


def round_adaptively(
    graph: ir.Model, weights: Mapping[Use, QuantizedTensor], batches: Batches
) -> dict[Use, QuantizedTensor]:
    """The codes of a model's weights by what its layers read on samples.

    Scales stay, so that a code differs from the nearest one by one at most. Weights that several nodes read,
    FP8 codes and what is no weight of a Conv, Gemm or MatMul stay as they are.

    Args:
        graph: the float graph whose weights were rounded.
        weights: rounded to the nearest codes.

    Raises:
        ModelError: what a layer reads is not finite on the samples; names it.
    """
    found = dict(weights)
    nodes = [node for node in graph.graph if _is_roundable(node, weights)]
    for node, gram in observe_grams(graph, nodes, batches) if batches else ():
        use, weight = (node.name or "", WEIGHT), constant_of(node.inputs[WEIGHT])
        if weight is None:
            continue
        grid, codes = weights[use].qparams, weights[use].codes
        steps = weight.astype(np.float64) / grid.broadcast(grid.scale, weight.ndim)
        rounded = round_codes(
            as_matrix(steps, node), as_matrix(codes, node), gram, qmin=grid.qmin, qmax=grid.qmax
        )
        chosen = np.ascontiguousarray(from_matrix(rounded, node, codes.shape), codes.dtype)
        found[use] = replace(weights[use], codes=chosen)
    changed = sum(np.count_nonzero(found[use].codes != tensor.codes) for use, tensor in weights.items())
    log.debug("%d codes of %d weights are not the nearest", changed, len(nodes))
    return found


def _is_roundable(node: ir.Node, weights: Mapping[Use, QuantizedTensor]) -> bool:
    tensor = weights.get((node.name or "", WEIGHT))
    value = node.inputs[WEIGHT] if len(node.inputs) > WEIGHT else None
    if tensor is None or value is None or tensor.qparams.dtype.is_float or only_consumer(value) is not node:
        return False
    if not is_operator(node, "Conv", "Gemm", "MatMul") or int_attribute(node, "transA", 0):
        return False
    return node.op_type == "Conv" or tensor.codes.ndim == 2


def round_codes(steps: Array, nearest: Array, gram: Array, *, qmin: int, qmax: int) -> Array:
    """Codes with the least error of what a layer makes, f64.

    Args:
        steps: weights over their scales, f64 [groups, K, N].
        nearest: their nearest codes, shaped like them.
        gram: mean of x x' over a layer's inputs, f64 [groups, K, K].

    Raises:
        ValueError: shapes do not fit.
    """
    groups, inputs, _ = steps.shape
    if nearest.shape != steps.shape or gram.shape != (groups, inputs, inputs):
        raise ValueError(f"codes {nearest.shape} and inputs {gram.shape} do not fit weights {steps.shape}")
    nearest = nearest.astype(np.float64)
    bounds = np.maximum(nearest - 1, qmin), np.minimum(nearest + 1, qmax)
    damped = _damped(gram)
    codes, gradient = nearest.copy(), damped @ (nearest - steps)
    for _ in range(SWEEPS):
        moved = 0
        for first in range(0, inputs, BLOCK):
            block = slice(first, min(first + BLOCK, inputs))
            change = _descend(codes, gradient[:, block].copy(), damped, block, bounds)
            moved += int(np.count_nonzero(change))
            gradient += damped[:, :, block] @ change
        if not moved:
            break
    return codes


def _descend(
    codes: Array, gradient: Array, damped: Array, block: slice, bounds: tuple[Array, Array]
) -> Array:
    """Move each code of a block of inputs, in place, to where the error is least; by how much they moved.

    Args:
        gradient: of the error in the block's codes, halved, [groups, block, N]; it is kept up to date.
    """
    lo, hi = bounds
    before = codes[:, block].copy()
    own = damped[:, block, block]
    for index, k in enumerate(range(block.start, block.stop)):
        best = np.rint(codes[:, k] - gradient[:, index] / own[:, index, index, None])
        step = np.clip(best, lo[:, k], hi[:, k]) - codes[:, k]
        if step.any():
            codes[:, k] += step
            gradient += own[:, :, index, None] * step[:, None, :]
    return np.asarray(codes[:, block] - before)


def _damped(gram: Array) -> Array:
    """The matrix with a part of its mean diagonal added to it; of inputs that are all zero, that of none."""
    inputs = gram.shape[1]
    mean = np.trace(gram, axis1=1, axis2=2) / max(inputs, 1)
    return np.asarray(gram + np.where(mean > 0, DAMPING * mean, 1.0)[:, None, None] * np.eye(inputs))
