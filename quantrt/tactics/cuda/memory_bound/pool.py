# SPDX-License-Identifier: Apache-2.0
"""Pools: our kernels with the whole epilogue inside, then torch's with rows kernels behind them."""

from __future__ import annotations

import math

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d.spec import ConvProblem
from quantrt.kernels.pool import spec, tiles
from quantrt.kernels.spatial import as_pair
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import Pool
from quantrt.tactics.cuda.forms.channel_constants import channel_constants
from quantrt.tactics.cuda.forms.pixel_gaps import gaps_of, pixel_options
from quantrt.tactics.cuda.memory_bound.library_step import library_tactic, stored_facts
from quantrt.tactics.cuda.tactic import DEQUANTIZED, Rejected, Tactic, Workload, whole_draft

__all__ = ["list_tactics", "problem_of"]

_SOURCE = "triton"
_LIBRARY = "torch"
_FLOATS = ("float16", "bfloat16", "float32")


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernel in its tiles, the likely fastest first, then torch's."""
    formula = workload.formula
    if not isinstance(formula, Pool):
        return [Rejected(_SOURCE, "pool", f"the formula is {type(formula).__name__}, not a pool")]
    return [*_own(workload, formula, device), _library(workload, formula, device)]


def problem_of(workload: Workload, formula: Pool) -> spec.PoolProblem:
    """The problem of a workload whose input has the axes that the formula says."""
    x = workload.inputs[0]
    images, channels, *size = x.shape
    if formula.is_global:
        size = [1, math.prod(size)]
    x_pitch, pitches = (0, ()) if formula.is_global else gaps_of(workload)
    H, W = as_pair(size, 1)
    half = len(formula.kernel)
    (top, left), (bottom, right) = as_pair(formula.pads[:half], 0), as_pair(formula.pads[half:], 0)
    R, S = (H, W) if formula.is_global else as_pair(formula.kernel, 1)
    window = ConvProblem(
        images=images,
        H=H,
        W=W,
        C=channels,
        N=channels,
        R=R,
        S=S,
        strides=as_pair(formula.strides, 1),
        pads=(top, left, bottom, right),
        dilations=as_pair(formula.dilations, 1),
        dtype=x.dtype,
        epilogue=formula.epilogue,
        tensors=tuple(facts.dtype for facts in workload.inputs[1:]),
        outputs=workload.outputs,
        pad_code=formula.pad_code,
        x_pitch=x_pitch,
        pitches=pitches,
    )
    return spec.PoolProblem(window, formula.kind, formula.has_ceil, formula.counts_padding, formula.is_global)


def _own(workload: Workload, formula: Pool, device: GpuFacts) -> list[Tactic | Rejected]:
    reason = _why_not_shape(workload, formula)
    if reason:
        return [Rejected(_SOURCE, "pool", reason)]
    problem = problem_of(workload, formula)
    reason = spec.why_not(problem)
    if reason:
        return [Rejected(_SOURCE, "pool", reason)]
    name = "global pool" if formula.is_global else "pool"
    found: list[Tactic | Rejected] = []
    for tile in tiles.configs(problem, device):
        draft = whole_draft(
            "pool",
            workload,
            {"formula": to_json(formula), **pixel_options(problem.window)},
            constants=channel_constants(workload, formula.epilogue, problem.window.N),
            kernels=(spec.kernel_of(problem, tile),),
        )
        found.append(Tactic(_SOURCE, f"{name} {tile.name}", (draft,)))
    return found


def _why_not_shape(workload: Workload, formula: Pool) -> str | None:
    x = workload.inputs[0]
    is_right = len(x.shape) > 2 if formula.is_global else len(x.shape) == len(formula.kernel) + 2
    return None if is_right and x.shape[1] else f"an input of {list(x.shape)}"


def _library(workload: Workload, formula: Pool, device: GpuFacts) -> Tactic | Rejected:
    """The pool of torch, and what remains as a kernel over rows; codes are pooled as float16."""
    x = workload.inputs[0]
    name = f"pool {DEQUANTIZED}" if x.dtype == "int8" else "pool"
    dtype = "float16" if x.dtype == "int8" else x.dtype
    reason = _why_not_shape(workload, formula) or _why_not_library(formula, dtype)
    if not reason and x.dtype == "int8" and formula.kind == "average" and _has_zero_point(formula):
        reason = "its input has a zero point, and float16 rounds a mean of codes before that is taken off"
    if reason:
        return Rejected(_LIBRARY, name, reason)
    stored = stored_facts(dtype, formula.output_shape(x.shape))
    first = "pooling", {"formula": to_json(formula), "dtype": dtype}
    return library_tactic(workload, name, first, stored, formula.epilogue, device=device)


def _has_zero_point(formula: Pool) -> bool:
    """Whether a zero point is taken off what was pooled."""
    return any(step.op == "sub" and step.args[0] == 0 for step in formula.epilogue.instructions)


def _why_not_library(formula: Pool, dtype: str) -> str | None:
    half = len(formula.kernel)
    begins, ends = formula.pads[:half], formula.pads[half:]
    is_dilated = any(dilation != 1 for dilation in formula.dilations)
    reasons = (
        (dtype not in _FLOATS, f"no pool of {dtype}"),
        (begins != ends, "its padding differs between the sides of an axis"),
        (
            any(2 * pad > size for pad, size in zip(begins, formula.kernel, strict=True)),
            "its padding is longer than half of its windows",
        ),
        (formula.kind == "average" and is_dilated, "no mean over windows with gaps"),
        (formula.pad_code != 0, f"its padding counts as the code {formula.pad_code}, and torch's as 0"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)
