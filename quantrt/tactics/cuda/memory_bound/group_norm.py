# SPDX-License-Identifier: Apache-2.0
"""Norms over groups of channels: our kernels with the epilogue inside, then torch's with rows kernels."""

from __future__ import annotations

import math
from dataclasses import replace

from quantrt.gpu import GpuFacts
from quantrt.kernels.group_norm import spec, tiles
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import GroupNorm
from quantrt.tactics.cuda.forms.channel_constants import channel_constants
from quantrt.tactics.cuda.memory_bound.library_step import library_tactic, stored_facts
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload, whole_draft
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["list_tactics", "problem_of"]

_SOURCE = "triton"
_LIBRARY = "torch"
_NAME = "group norm"
_PARTS, _STATISTICS = "parts", "statistics"
"""Buffers: statistics of parts and of groups."""


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernels in their tiles, the likely fastest first, then torch's."""
    formula = workload.formula
    if not isinstance(formula, GroupNorm):
        return [Rejected(_SOURCE, _NAME, f"the formula is {type(formula).__name__}, not a norm of groups")]
    return [*_own(workload, formula, device), _library(workload, formula, device)]


def problem_of(workload: Workload, formula: GroupNorm) -> spec.GroupNormProblem:
    """The problem of a workload whose input has the axes that the formula says."""
    x, *more = workload.inputs
    shift = None if formula.shift is None else more.pop(0)
    has_pixels = math.prod(x.shape[2:]) > 1
    per_image = tuple(has_pixels and math.prod(facts.shape[2:]) == 1 for facts in more)
    return spec.GroupNormProblem(
        images=x.shape[0],
        HW=math.prod(x.shape[2:]),
        C=formula.channels,
        groups=formula.groups,
        dtype=x.dtype,
        epilogue=formula.epilogue,
        tensors=tuple(facts.dtype for facts in more),
        outputs=workload.outputs,
        per_image=per_image,
        shift="" if shift is None else shift.dtype,
    )


def _own(workload: Workload, formula: GroupNorm, device: GpuFacts) -> list[Tactic | Rejected]:
    reason = _why_not_shape(workload, formula)
    problem = None if reason else problem_of(workload, formula)
    if problem is None or (reason := spec.why_not(problem)):
        return [Rejected(_SOURCE, _NAME, str(reason))]
    return [_tactic(workload, problem, tile, device) for tile in tiles_of(tiles.configs, problem, device)]


def _why_not_shape(workload: Workload, formula: GroupNorm) -> str | None:
    shape = workload.inputs[0].shape
    is_right = len(shape) > 2 and shape[1] == formula.channels
    return None if is_right else f"an input of {list(shape)}"


def _tactic(
    workload: Workload, problem: spec.GroupNormProblem, tile: spec.TileConfig, device: GpuFacts
) -> Tactic:
    scratch = () if tile.is_whole else (_PARTS, _STATISTICS)
    programs = tiles.parts_of(tile, device)
    draft = whole_draft(
        "group_norm",
        workload,
        {"formula": to_json(workload.formula), "programs": programs},
        constants=channel_constants(workload, problem.epilogue, problem.C),
        kernels=spec.kernels_of(problem, tile),
    )
    draft = replace(draft, outputs=(*draft.outputs, *scratch))
    workspace_bytes = 0 if tile.is_whole else 8 * problem.C * (programs + problem.images)
    return Tactic(_SOURCE, f"{_NAME} {tile.name}", (draft,), workspace_bytes)


def _library(workload: Workload, formula: GroupNorm, device: GpuFacts) -> Tactic | Rejected:
    """The norm of torch, and the epilogue as a kernel over rows."""
    x = workload.inputs[0]
    reason = _why_not_shape(workload, formula)
    if reason is None and x.dtype not in spec.FLOATS:
        reason = f"no norm of {x.dtype}"
    if reason:
        return Rejected(_LIBRARY, _NAME, reason)
    stored = stored_facts(x.dtype, x.shape)
    first = "group_normalization", {"formula": to_json(formula)}
    reads = 1 if formula.shift is None else 2
    return library_tactic(workload, _NAME, first, stored, formula.epilogue, device=device, reads=reads)
