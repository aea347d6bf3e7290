# SPDX-License-Identifier: Apache-2.0
"""Resized images: our kernel for nearest pixels, then torch's interpolation with rows kernels behind it."""

from __future__ import annotations

from quantrt.gpu import GpuFacts
from quantrt.kernels.resize import spec
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import Resize
from quantrt.tactics.cuda.forms.channel_constants import channel_constants
from quantrt.tactics.cuda.forms.pixel_gaps import gaps_of, pixel_options
from quantrt.tactics.cuda.memory_bound.library_step import library_tactic, stored_facts
from quantrt.tactics.cuda.tactic import DEQUANTIZED, Rejected, Tactic, Workload, whole_draft
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["list_tactics"]

_SOURCE, _LIBRARY = "triton", "torch"
_NAME = "resize"
_FLOATS = ("float16", "bfloat16", "float32")


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernel in its tiles, the likely fastest first, then torch's."""
    formula = workload.formula
    if not isinstance(formula, Resize):
        return [Rejected(_SOURCE, _NAME, f"the formula is {type(formula).__name__}, not Resize")]
    return [*_own(workload, formula, device), _library(workload, formula, device)]


def _own(workload: Workload, formula: Resize, device: GpuFacts) -> list[Tactic | Rejected]:
    reason = _why_not(workload, formula)
    if reason is None and not formula.is_nearest:
        reason = "no kernel interpolates"
    if reason:
        return [Rejected(_SOURCE, _NAME, reason)]
    problem = _problem_of(workload, formula)
    reason = spec.why_not(problem)
    if reason:
        return [Rejected(_SOURCE, _NAME, reason)]
    found: list[Tactic | Rejected] = []
    for tile in tiles_of(spec.configs, problem, device):
        draft = whole_draft(
            "repeat_pixels",
            workload,
            {"formula": to_json(formula), **pixel_options(problem)},
            constants=channel_constants(workload, problem.epilogue, problem.C),
            kernels=(spec.kernel_of(problem, tile),),
        )
        found.append(Tactic(_SOURCE, f"{_NAME} {tile.name}", (draft,)))
    return found


def _why_not(workload: Workload, formula: Resize) -> str | None:
    shape = workload.inputs[0].shape
    is_right = len(shape) == len(formula.scales) + 2 and shape[1] > 0
    return None if is_right else f"an input of {list(shape)}"


def _problem_of(workload: Workload, formula: Resize) -> spec.ResizeProblem:
    x = workload.inputs[0]
    H, W = (1, *x.shape[2:])[-2:]
    x_pitch, pitches = gaps_of(workload)
    R, S = (1, *(int(scale) for scale in formula.scales))[-2:]
    return spec.ResizeProblem(
        images=x.shape[0],
        H=H,
        W=W,
        C=x.shape[1],
        R=R,
        S=S,
        dtype=x.dtype,
        epilogue=formula.epilogue,
        tensors=tuple(facts.dtype for facts in workload.inputs[1:]),
        outputs=workload.outputs,
        x_pitch=x_pitch,
        pitches=pitches,
    )


def _library(workload: Workload, formula: Resize, device: GpuFacts) -> Tactic | Rejected:
    """The interpolation of torch, and what remains as a kernel over rows; codes as float16."""
    x = workload.inputs[0]
    name = f"{_NAME} {DEQUANTIZED}" if x.dtype == "int8" else _NAME
    dtype = "float16" if x.dtype == "int8" else x.dtype
    reason = _why_not(workload, formula) or (f"no resize of {dtype}" if dtype not in _FLOATS else None)
    if reason:
        return Rejected(_LIBRARY, name, reason)
    stored = stored_facts(dtype, (*x.shape[:2], *formula.output_size(tuple(x.shape[2:]))))
    first = "interpolation", {"formula": to_json(formula), "dtype": dtype}
    return library_tactic(workload, name, first, stored, formula.epilogue, device=device)
