# SPDX-License-Identifier: Apache-2.0
"""A first layer and the max pool behind it: one kernel of ours behind the one that folds pixels."""

from __future__ import annotations

from dataclasses import replace

from quantrt.gpu import GpuFacts
from quantrt.kernels.fold_pixels import spec as fold_pixels
from quantrt.kernels.pooled_conv import spec
from quantrt.regions.region import PooledConv
from quantrt.tactics.cuda.convolutions.of_workload import problem_of, tactic_of
from quantrt.tactics.cuda.convolutions.weights import rows_of_folded
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload

__all__ = ["POOLED", "list_tactics", "why_not"]

_SOURCE = "triton"
_FOLDED = "folded"
"""The buffer of folded pixels."""
POOLED = "pooled_conv"

_WINDOW = ((3, 3), (2, 2), (1, 1), (1, 1, 1, 1))
"""Kernel, strides, dilations and pads of the pool that the kernel has."""


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernel in its tiles, the likely fastest first."""
    reason = why_not(workload, device)
    if reason:
        return [Rejected(_SOURCE, POOLED, reason)]
    formula, weight = workload.formula, workload.weight
    assert isinstance(formula, PooledConv) and weight is not None
    convolution = formula.convolution
    problem = problem_of(workload, convolution, weight)
    folding = fold_pixels.folding_of(problem)
    assert folding is not None
    constant = rows_of_folded(convolution.weight, weight, folding, spec.RUN)
    fold = fold_pixels.kernel_of(spec.with_left(problem, folding), folding)
    tactics: list[Tactic | Rejected] = []
    for tile in spec.configs(problem, folding, device):
        name = f"{POOLED} {tile.name}"
        kernel = spec.kernel_of(problem, folding, tile)
        (draft,) = tactic_of(workload, problem, constant, name, kernel).drafts
        draft = replace(draft, runner=POOLED, outputs=(*draft.outputs, _FOLDED), kernels=(kernel, fold))
        tactics.append(Tactic(_SOURCE, name, (draft,), spec.folded_bytes(problem, folding)))
    return tactics


def why_not(workload: Workload, device: GpuFacts) -> str | None:
    """Why the kernel cannot compute a workload, in one phrase; None when it can."""
    formula, weight = workload.formula, workload.weight
    if not isinstance(formula, PooledConv) or weight is None or len(weight.shape) != 4:
        return "no convolution of images with a pool behind it"
    convolution, pool = formula.convolution, formula.pool
    window = pool.kernel, pool.strides, pool.dilations, pool.pads
    if pool.kind != "max" or window != _WINDOW or pool.has_ceil or not pool.epilogue.is_identity:
        return "a pool other than the largest of 3 by 3 in steps of 2"
    if convolution.groups > 1 or (workload.inputs[0].dtype == "int8") != (weight.dtype.name == "int8"):
        return "groups, or a weight of another type than x"
    problem = problem_of(workload, convolution, weight)
    if fold_pixels.folding_of(problem) is None:
        return "pixels that are not folded"
    if not spec.never_falls(convolution.epilogue, workload.constants):
        return "an epilogue that may fall as its sum grows"
    return spec.why_not(problem, device)
