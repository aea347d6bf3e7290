# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions: our kernel where windows do not overlap, then cuDNN's with kernels over rows.

int8 codes run in cuDNN as float16, "dequantized", as in cudnn.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.conv_transpose import spec
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import ConvTranspose
from quantrt.tactics.cuda.convolutions.cudnn import power_of_two
from quantrt.tactics.cuda.convolutions.weights import channels_last, taps_first
from quantrt.tactics.cuda.forms.channel_constants import bias_constant, channel_constants
from quantrt.tactics.cuda.forms.epilogues import as_rows, scaled_accumulator, split_bias
from quantrt.tactics.cuda.forms.pixel_gaps import gaps_of
from quantrt.tactics.cuda.memory_bound.library_step import stored_facts
from quantrt.tactics.cuda.memory_bound.rows_drafts import by_channel, rows_drafts
from quantrt.tactics.cuda.tactic import (
    DEQUANTIZED,
    Draft,
    Rejected,
    Tactic,
    TensorFacts,
    Workload,
    whole_draft,
)
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["list_tactics", "problem_of"]

_SOURCE, _LIBRARY = "triton", "cudnn"
_OWN, _NAME = "spread", "transposed convolution"
_CODES, _SUMS = "codes", "sums"
"""Buffers between drafts: x as floats, and the convolution's result."""

_MAX_OWN_RANK = 2


@dataclass(frozen=True)
class _Job:
    """One workload with its types narrowed."""

    workload: Workload
    formula: ConvTranspose
    weight: np.ndarray
    device: GpuFacts

    @property
    def channels(self) -> int:
        """Of the result."""
        return int(self.weight.shape[1]) * self.formula.groups

    @property
    def dtype(self) -> str:
        """In which the library computes."""
        return "float16" if self.weight.dtype == np.int8 else self.workload.inputs[0].dtype


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernel in its tiles, the likely fastest first, then the library's way."""
    formula, weight = workload.formula, workload.weight
    if not isinstance(formula, ConvTranspose) or weight is None:
        reason = f"the formula is {type(formula).__name__}, not a transposed convolution"
        return [Rejected(_SOURCE, _OWN, reason)]
    job = _Job(workload, formula, weight, device)
    return [*_own(job), _library(job)]


def problem_of(workload: Workload, formula: ConvTranspose, weight: np.ndarray) -> spec.SpreadProblem:
    """The problem of our kernel, of one or two spatial axes."""
    x = workload.inputs[0]
    R, S = (1, *formula.kernel)[-2:]
    return spec.SpreadProblem(
        pixels=x.shape[0] * math.prod(x.shape[2:]),
        K=weight.shape[0],
        C=weight.shape[1],
        R=R,
        S=S,
        dtype=x.dtype,
        epilogue=formula.epilogue,
        tensors=tuple(facts.dtype for facts in workload.inputs[1:]),
        outputs=workload.outputs,
        pitches=gaps_of(workload)[1],
    )


def _own(job: _Job) -> list[Tactic | Rejected]:
    reason = _why_not_own(job)
    if reason:
        return [Rejected(_SOURCE, _OWN, reason)]
    problem = problem_of(job.workload, job.formula, job.weight)
    reason = spec.why_not(problem, job.device)
    if reason:
        return [Rejected(_SOURCE, _OWN, reason)]
    tactics: list[Tactic | Rejected] = []
    for tile in tiles_of(spec.configs, problem, job.device):
        pitches = {"pitches": list(problem.pitches)} if problem.pitches else {}
        draft = whole_draft(
            "spread",
            job.workload,
            {"formula": to_json(job.formula), **pitches},
            constants=(
                taps_first(job.formula.weight, job.weight, problem.dtype),
                *channel_constants(job.workload, problem.epilogue, problem.C),
            ),
            kernels=(spec.kernel_of(problem, tile),),
        )
        tactics.append(Tactic(_SOURCE, f"{_OWN} {tile.name}", (draft,)))
    return tactics


def _why_not_own(job: _Job) -> str | None:
    if not job.formula.is_spread:
        return "its windows overlap, are cut off, or have gaps or groups"
    if len(job.formula.kernel) > _MAX_OWN_RANK:
        return f"no kernel for {len(job.formula.kernel)} spatial axes"
    return _why_not_shape(job)


def _why_not_shape(job: _Job) -> str | None:
    x, weight = job.workload.inputs[0], job.weight
    if len(x.shape) != weight.ndim or x.shape[1] != weight.shape[0]:
        return f"an input of {list(x.shape)} for a weight of {list(weight.shape)}"
    if (x.dtype == "int8") != (weight.dtype == np.int8):
        return f"an input of {x.dtype} for a weight of {weight.dtype}"
    return None


def _library(job: _Job) -> Tactic | Rejected:
    is_dequantized = job.weight.dtype == np.int8
    name = f"{_NAME} {DEQUANTIZED}" if is_dequantized else _NAME
    reason = _why_not_shape(job)
    if reason is None and job.dtype not in ("float16", "bfloat16", "float32"):
        reason = f"no convolution of {job.dtype}"
    if reason:
        return Rejected(_LIBRARY, name, reason)
    drafts = _dequantized(job) if is_dequantized else _floating(job)
    if isinstance(drafts, str):
        return Rejected(_LIBRARY, name, drafts)
    buffers = {buffer for draft in drafts for buffer in draft.outputs}
    elements = math.prod(_sums(job).shape) * (_SUMS in buffers)
    elements += math.prod(job.workload.inputs[0].shape) * (_CODES in buffers)
    return Tactic(_LIBRARY, name, drafts, elements * ELEMENT_BYTES[job.dtype])


def _floating(job: _Job) -> tuple[Draft, ...] | str:
    """Drafts for floats; why there are none."""
    split = split_bias(job.formula.epilogue)
    if split.rest.is_identity and job.workload.outputs == (job.dtype,):
        return (_convolution(job, "in0", "out0", split.bias),)
    rest = _rest(job, split.rest)
    return rest if isinstance(rest, str) else (_convolution(job, "in0", _SUMS, split.bias), *rest)


def _dequantized(job: _Job) -> tuple[Draft, ...] | str:
    """Drafts for codes, multiplied by a power of two that keeps sums in range; why there are none."""
    scale = power_of_two(math.prod(job.weight.shape) // max(job.weight.shape[1] * job.formula.groups, 1))
    multiply = Expression(
        (Operand("tensor"), Operand("scalar", value=scale)), (Instruction("mul", (0, 1)),), (2,), (False,)
    )
    before = rows_drafts(
        job.workload,
        multiply,
        job.workload.inputs[:1],
        outputs=("float16",),
        names={"in0": "in0", "out0": _CODES},
        device=job.device,
    )
    after = _rest(job, scaled_accumulator(job.formula.epilogue, 1.0 / scale))
    if isinstance(before, str) or isinstance(after, str):
        return before if isinstance(before, str) else str(after)
    return (*before, _convolution(job, _CODES, _SUMS, ""), *after)


def _rest(job: _Job, epilogue: Expression) -> tuple[Draft, ...] | str:
    """The epilogue over stored sums, by the first rows tactic; why there is none."""
    return rows_drafts(
        job.workload,
        as_rows(epilogue),
        (_sums(job), *job.workload.inputs[1:]),
        outputs=job.workload.outputs,
        names={"in0": _SUMS},
        device=job.device,
        constants=by_channel(job.workload.constants, len(job.formula.kernel)),
    )


def _sums(job: _Job) -> TensorFacts:
    """The convolution's result, channels-last."""
    x = job.workload.inputs[0].shape
    shape = (x[0], job.channels, *job.formula.output_size(tuple(x[2:])))
    return stored_facts(job.dtype, shape)


def _convolution(job: _Job, source: str, output: str, bias: str) -> Draft:
    options: dict[str, Any] = {"formula": to_json(job.formula), "dtype": job.dtype, "has_bias": bool(bias)}
    constants = [channels_last(job.formula.weight, job.weight, job.dtype)]
    if bias:
        constants.append(bias_constant(job.workload, bias, job.channels, job.dtype))
    return Draft("transposed_convolution", (source,), (output,), options, tuple(constants))
