# SPDX-License-Identifier: Apache-2.0
"""Weights rounded by what their layers make of real inputs: the problem of AdaRound, by coordinate descent.

    minimize over codes q   (s q - w)' H (s q - w),   H = E[x x'] + damping,   |q - nearest(w / s)| <= 1

Where biases are corrected afterwards they take back the mean of what rounding does, and H = Cov[x] + damping.
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
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator, only_consumer
from quantrt.quantize.algorithms.bias_correction import has_bias
from quantrt.quantize.algorithms.group_rounding import QMAX, QMIN, Groups, round_nearest
from quantrt.quantize.algorithms.layer_inputs import Batches, as_matrix, from_matrix, observe_grams
from quantrt.quantize.quantized_model import Use
from quantrt.quantize.scales.qparams import QuantizedTensor

__all__ = ["round_adaptively", "round_codes", "round_groups"]

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
    graph: ir.Model,
    weights: Mapping[Use, QuantizedTensor],
    batches: Batches,
    *,
    corrects_biases: bool = False,
) -> dict[Use, QuantizedTensor]:
    """The codes of a model's weights by what its layers read on samples.

    Scales stay, so that a code differs from the nearest one by one at most. Weights that several nodes read,
    FP8 codes and what is no weight of a Conv, Gemm or MatMul stay as they are.

    Args:
        graph: the float graph whose weights were rounded.
        weights: rounded to the nearest codes.
        corrects_biases: whether the biases of layers are corrected for the codes.

    Raises:
        ModelError: what a layer reads is not finite on the samples; names it.
    """
    found = dict(weights)
    nodes = [node for node in graph.graph if _is_roundable(node, weights)]
    centred = [node for node in nodes if corrects_biases and has_bias(node)]
    for node, gram in observe_grams(graph, nodes, batches, centred) if batches else ():
        use, weight = (node.name or "", WEIGHT), constant_of(node.inputs[WEIGHT])
        if weight is None:
            continue
        grid, codes = weights[use].qparams, weights[use].codes
        scale = np.broadcast_to(grid.broadcast(grid.scale, weight.ndim), weight.shape)
        rounded = round_codes(
            as_matrix(weight, node),
            as_matrix(scale, node),
            as_matrix(codes, node),
            gram,
            bounds=(grid.qmin, grid.qmax),
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


def round_groups(weight: Array, gram: Array, *, group_size: int, is_positive: bool = False) -> Groups:
    """Codes of 4 bits in groups of inputs, on the scales of the nearest codes.

    Args:
        weight: f32 [K, N].
        gram: mean of x x' over what the weight is multiplied with, f64 [K, K].
        is_positive: of the scales.
    """
    nearest = round_nearest(weight, group_size=group_size, is_positive=is_positive)
    codes = round_codes(
        weight[None], nearest.spread()[None], nearest.codes[None], gram[None], bounds=(QMIN, QMAX)
    )
    return replace(nearest, codes=codes[0].astype(nearest.codes.dtype))


def round_codes(
    weight: Array, scale: Array, nearest: Array, gram: Array, *, bounds: tuple[int, int]
) -> Array:
    """Codes with the least error of what a layer makes, f64.

    Args:
        weight: [groups, K, N].
        scale: of each code, shaped like the weight.
        nearest: the nearest codes.
        gram: mean of x x' over a layer's inputs, f64 [groups, K, K].
        bounds: the least and the largest code.

    Raises:
        ValueError: shapes do not fit.
    """
    groups, inputs, _ = weight.shape
    if not weight.shape == scale.shape == nearest.shape or gram.shape != (groups, inputs, inputs):
        shapes = f"codes {nearest.shape}, scales {scale.shape} and inputs {gram.shape}"
        raise ValueError(f"{shapes} do not fit weights {weight.shape}")
    scale, damped = scale.astype(np.float64), _damped(gram)
    codes = nearest.astype(np.float64)
    lo, hi = np.maximum(codes - 1, bounds[0]), np.minimum(codes + 1, bounds[1])
    gradient = damped @ (codes * scale - weight)
    for _ in range(SWEEPS):
        moved = 0
        for first in range(0, inputs, BLOCK):
            block = slice(first, min(first + BLOCK, inputs))
            part = _Part(*(array[:, block] for array in (codes, scale, lo, hi)))
            change = _descend(part, gradient[:, block].copy(), damped[:, block, block])
            moved += int(np.count_nonzero(change))
            gradient += damped[:, :, block] @ change
        if not moved:
            break
    return codes


class _Part(NamedTuple):
    """A run of a layer's inputs: codes, which change in place, their scales and bounds, [groups, run, N]."""

    codes: Array
    scale: Array
    lo: Array
    hi: Array


def _descend(part: _Part, gradient: Array, gram: Array) -> Array:
    """Move each code of a part to where the error is least; by how much the values moved.

    Args:
        gradient: of the error in the part's values, halved; it is kept up to date.
        gram: of the part's inputs.
    """
    before = part.codes.copy()
    for k in range(part.codes.shape[1]):
        codes, scale = part.codes[:, k], part.scale[:, k]
        best = np.rint(codes - gradient[:, k] / (gram[:, k, k, None] * scale))
        step = np.clip(best, part.lo[:, k], part.hi[:, k]) - codes
        if step.any():
            codes += step
            gradient += gram[:, :, k, None] * (step * scale)[:, None, :]
    return np.asarray((part.codes - before) * part.scale)


def _damped(gram: Array) -> Array:
    """The matrix with a part of its mean diagonal added to it; of inputs that are all zero, that of none."""
    inputs = gram.shape[1]
    mean = np.trace(gram, axis1=1, axis2=2) / max(inputs, 1)
    return np.asarray(gram + np.where(mean > 0, DAMPING * mean, 1.0)[:, None, None] * np.eye(inputs))
