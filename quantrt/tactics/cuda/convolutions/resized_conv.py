# SPDX-License-Identifier: Apache-2.0
"""A convolution of resized pixels, which are read where they lie: no kernel stores the larger image.

As the convolutions of its phases, of which the weights are sums: windows in boxes on compute capability 9.0,
pixels that are gathered everywhere. Codes run as float16 so: sums of a few weights' codes have too many bits
for int8, but are exact, and so are sums of their products up to 2**24; what is larger is rounded to 24 bits.
Windows that have no phases are gathered whole, codes as codes: slower on an H200 wherever there are phases
(docs/decisions/0023).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv2d import spec as conv2d
from quantrt.kernels.conv2d import tiles as conv2d_tiles
from quantrt.kernels.conv_hopper import spec as conv_hopper
from quantrt.kernels.conv_hopper import tiles as box_tiles
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.phases.spec import Phases, phases_of
from quantrt.regions.expression import Expression, Operand
from quantrt.regions.region import ResizedConv
from quantrt.tactics.cuda.convolutions.of_workload import problem_of, tactic_of
from quantrt.tactics.cuda.convolutions.weights import channels_last
from quantrt.tactics.cuda.memory_bound.rows_drafts import rows_drafts
from quantrt.tactics.cuda.tactic import Constant, Draft, Rejected, Tactic, Workload
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["list_tactics", "why_not"]

_SOURCE = "triton"
_CONV2D = "conv2d"
_PHASES = "conv2d phases"
_HALVES_PHASES = "conv2d phases in halves"
_HALVES = "halves"
"""The buffer of codes as float16."""

_LARGEST_CODE = 128
_MAX_EXACT = 1 << 11
"""Whole numbers up to it are exact in float16."""

_AS_IT_IS = Expression((Operand("tensor"),), (), (0,), (False,))


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernels in their tiles, the likely fastest first: by phases, whole windows where there are none."""
    reason = why_not(workload, device)
    if reason:
        return [Rejected(_SOURCE, _CONV2D, reason)]
    problem = _problem_of(workload)
    phased = _in_phases(workload, problem, device)
    has_phases = any(isinstance(x, Tactic) for x in phased)
    return phased if has_phases else [*phased, *_whole(workload, problem, device)]


def why_not(workload: Workload, device: GpuFacts) -> str | None:
    """Why no kernel computes a workload, in one phrase; None when one does."""
    formula, weight = workload.formula, workload.weight
    if not isinstance(formula, ResizedConv) or weight is None or weight.ndim != 4:
        return "no convolution of resized images"
    convolution, resize, x = formula.convolution, formula.resize, workload.inputs[0]
    if not resize.is_nearest or not resize.epilogue.is_identity or max(resize.scales) <= 1:
        return "pixels that are not just repeated"
    if convolution.strides != (1, 1) or convolution.groups > 1 or min(convolution.pads) < 0:
        return "strides, groups or a negative padding"
    if (x.dtype == "int8") != (weight.dtype == np.int8):
        return f"an input of {x.dtype} for a weight of {weight.dtype}"
    return conv2d.why_not(_problem_of(workload), device)


def _problem_of(workload: Workload) -> conv2d.ConvProblem:
    formula, weight = workload.formula, workload.weight
    assert isinstance(formula, ResizedConv) and weight is not None
    vertical, horizontal = (int(scale) for scale in formula.resize.scales)
    return replace(problem_of(workload, formula.convolution, weight), repeats=(vertical, horizontal))


def _whole(workload: Workload, problem: conv2d.ConvProblem, device: GpuFacts) -> list[Tactic | Rejected]:
    """Every tap of the window for itself, its pixels gathered."""
    constant = _weight_of(workload, problem.dtype)
    return [
        tactic_of(
            workload, problem, constant, f"{_CONV2D} repeated {tile.name}", conv2d.kernel_of(problem, tile)
        )
        for tile in tiles_of(conv2d_tiles.configs_of_taps, problem, device)
    ]


def _in_phases(workload: Workload, problem: conv2d.ConvProblem, device: GpuFacts) -> list[Tactic | Rejected]:
    """Phase by phase, windows in boxes first; of codes behind a kernel that makes them halves."""
    is_codes = problem.dtype == "int8"
    name = _HALVES_PHASES if is_codes else _PHASES
    halves = replace(problem, dtype="float16", x_pitch=0) if is_codes else problem
    phases = phases_of(halves)
    if isinstance(phases, str):
        return [Rejected(_SOURCE, name, phases)]
    before: tuple[Draft, ...] | str = ()
    if is_codes:
        before = _as_halves(workload, phases.most_taps, device)
    if isinstance(before, str):
        return [Rejected(_SOURCE, name, before)]
    constant = _weight_of(workload, problem.dtype)
    size_bytes = problem.images * problem.H * problem.W * problem.C * ELEMENT_BYTES[halves.dtype]
    tactics: list[Tactic | Rejected] = []
    for tile, kernel in (*_windows(phases, device), *_pixels(phases, device)):
        (draft,) = tactic_of(workload, halves, constant, name, kernel).drafts
        inputs = (_HALVES, *draft.inputs[1:]) if is_codes else draft.inputs
        drafts = (*before, replace(draft, runner="phased_conv2d", inputs=inputs))
        tactics.append(Tactic(_SOURCE, f"{name} {tile}", drafts, size_bytes if is_codes else 0))
    return tactics


def _windows(phases: Phases, device: GpuFacts) -> Iterator[tuple[str, KernelSpec]]:
    """Names and kernels of tiles whose windows come in boxes."""
    problem = phases.problem
    if conv_hopper.why_not(problem, device):
        return
    for tile in tiles_of(box_tiles.configs, phases.every, device):
        if not tile.holds_w:  # it is another one in every phase
            tile = replace(tile, box=(min(tile.box[0], problem.images), *tile.box[1:]))
            yield tile.name, conv_hopper.kernel_of(problem, tile, phases=phases.repeats, leads=phases.leads)


def _pixels(phases: Phases, device: GpuFacts) -> Iterator[tuple[str, KernelSpec]]:
    """Names and kernels of tiles whose pixels are gathered."""
    for tile in tiles_of(conv2d_tiles.configs_of_taps, phases.every, device):
        kernel = conv2d.kernel_of(phases.problem, tile, phases=phases.repeats, leads=phases.leads)
        yield tile.name, kernel


def _as_halves(workload: Workload, most_taps: int, device: GpuFacts) -> tuple[Draft, ...] | str:
    """The step that makes float16 of codes; why there is none.

    Args:
        most_taps: whose codes are summed.
    """
    if most_taps * _LARGEST_CODE > _MAX_EXACT:
        return "sums of codes that are not exact in float16"
    x = workload.inputs[:1]
    return rows_drafts(workload, _AS_IT_IS, x, outputs=("float16",), names={"out0": _HALVES}, device=device)


def _weight_of(workload: Workload, dtype: str) -> Constant:
    """[N, *kernel, C]; the runner of the phases makes theirs of it."""
    formula, weight = workload.formula, workload.weight
    assert isinstance(formula, ResizedConv) and weight is not None
    return channels_last(formula.convolution.weight, weight, dtype)
