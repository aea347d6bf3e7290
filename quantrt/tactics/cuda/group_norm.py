# SPDX-License-Identifier: Apache-2.0
"""Norms over groups of channels: our kernels with the epilogue inside, then torch's with rows kernels."""

from __future__ import annotations

import math

from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.group_norm import spec, tiles
from quantrt.regions.expression import Expression
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import GroupNorm
from quantrt.tactics.cuda.channel_constants import channel_constants
from quantrt.tactics.cuda.epilogues import as_rows
from quantrt.tactics.cuda.rows_drafts import by_channel, rows_drafts
from quantrt.tactics.cuda.tactic import (
    Draft,
    Rejected,
    Tactic,
    TensorFacts,
    Workload,
    dense_strides,
)
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["list_tactics", "problem_of"]

_SOURCE = "triton"
_LIBRARY = "torch"
_NAME = "group norm"
_PARTS, _STATISTICS = "parts", "statistics"
_NORMAL = "normal"
"""Buffers: statistics of parts and of groups, and what torch normalized."""


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
    programs = tiles.parts_of(problem, tile, device)
    draft = Draft(
        runner="group_norm",
        inputs=tuple(f"in{i}" for i in range(len(workload.inputs))),
        outputs=(*(f"out{i}" for i in range(len(workload.outputs))), *scratch),
        options={
            "formula": to_json(workload.formula),
            "outputs": list(workload.outputs),
            "programs": programs,
        },
        constants=channel_constants(workload, problem.epilogue, problem.C),
        kernels=spec.kernels_of(problem, tile),
    )
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
    first = 1 if formula.shift is None else 2
    is_whole = formula.epilogue.is_identity and workload.outputs == (x.dtype,)
    options = {"formula": to_json(formula)}
    inputs = tuple(f"in{i}" for i in range(first))
    norm = Draft("group_normalization", inputs, ("out0" if is_whole else _NORMAL,), options)
    if is_whole:
        return Tactic(_LIBRARY, _NAME, (norm,))
    rest = _rest(workload, as_rows(formula.epilogue), first, device)
    if isinstance(rest, str):
        return Rejected(_LIBRARY, _NAME, rest)
    size_bytes = math.prod(x.shape) * ELEMENT_BYTES[x.dtype]
    return Tactic(_LIBRARY, _NAME, (norm, *rest), size_bytes)


def _rest(workload: Workload, epilogue: Expression, first: int, device: GpuFacts) -> tuple[Draft, ...] | str:
    """The epilogue over what was normalized, by the first rows tactic; why there is none."""
    x = workload.inputs[0]
    normal = TensorFacts(x.dtype, x.shape, dense_strides(x.shape, channels_last=True))
    return rows_drafts(
        workload,
        epilogue,
        (normal, *workload.inputs[first:]),
        outputs=workload.outputs,
        names={"in0": _NORMAL, **{f"in{1 + i}": f"in{first + i}" for i in range(len(workload.inputs))}},
        device=device,
        constants=by_channel(workload.constants, len(x.shape) - 2),
    )
