# SPDX-License-Identifier: Apache-2.0
"""Convolutions by cuDNN through torch, with the part of the epilogue that it takes; rows kernels do the rest.

int8 codes run as float16, "dequantized": products of codes are exact, their sums are rounded to float16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.regions.region import Conv
from quantrt.tactics.cuda.convolutions.weights import channels_last
from quantrt.tactics.cuda.forms.channel_constants import bias_constant
from quantrt.tactics.cuda.forms.epilogues import (
    as_rows,
    has_zero_point,
    is_relu,
    is_residual_relu,
    scaled_accumulator,
    split_bias,
)
from quantrt.tactics.cuda.memory_bound.rows_drafts import by_channel, rows_drafts
from quantrt.tactics.cuda.tactic import DEQUANTIZED, Draft, Rejected, Tactic, TensorFacts, Workload

__all__ = ["list_library_tactics", "power_of_two"]

_SOURCE = "cudnn"
_NAME = "convolution"
_BENCHMARKED = "benchmarked"
"""A word in the name of a tactic whose algorithm cuDNN chooses by timing, at the first run of each shape."""

SEARCH_HANDICAP = 1.01
"""cuDNN searches whenever an engine is opened, and again for every batch size. On an H200 that took the 29
convolutions of SDXL's UNet in float32 15 s, and gained 0.6 % of one of them and 0.03 % of all."""

_CODES = "codes"
_SUMS = "sums"
"""Buffers between drafts: x as floats, and the convolution's result."""

_MAX_RANK = 3
_FLOAT16_MAX = 65504.0
_MAX_PRODUCT = 128 * 127
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class _Fused:
    """What the convolution's step computes, and the expression over what it stores.

    Attributes:
        rest: None where nothing remains.
    """

    bias: str = ""
    has_residual: bool = False
    has_relu: bool = False
    rest: Expression | None = None


def list_library_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Tactics with the algorithm that cuDNN expects to be fastest, then with the one that it finds to be."""
    formula, weight = workload.formula, workload.weight
    if not isinstance(formula, Conv) or weight is None:
        return [Rejected(_SOURCE, _NAME, f"the formula is {type(formula).__name__}, not a convolution")]
    is_dequantized = weight.dtype == np.int8
    name = f"{_NAME} {DEQUANTIZED}" if is_dequantized else _NAME
    job = _Job(workload, formula, weight, device)
    reason = _why_not(job)
    if reason:
        return [Rejected(_SOURCE, name, reason)]
    drafts = _dequantized(job) if is_dequantized else _floating(job)
    if isinstance(drafts, str):
        return [Rejected(_SOURCE, name, drafts)]
    workspace_bytes = _intermediate_bytes(job, drafts)
    return [
        Tactic(_SOURCE, name, drafts, workspace_bytes),
        Tactic(
            _SOURCE,
            f"{name} {_BENCHMARKED}",
            tuple(map(_benchmarked, drafts)),
            workspace_bytes,
            handicap=SEARCH_HANDICAP,
        ),
    ]


@dataclass(frozen=True)
class _Job:
    """One workload with its types narrowed."""

    workload: Workload
    formula: Conv
    weight: np.ndarray
    device: GpuFacts

    def dtype(self) -> str:
        """The type that the library computes in."""
        return "float16" if self.weight.dtype == np.int8 else self.workload.inputs[0].dtype

    def sums(self) -> TensorFacts:
        """The convolution's result, channels-last."""
        x, formula = self.workload.inputs[0].shape, self.formula
        half = len(formula.strides)
        axes = zip(
            x[2:],
            self.weight.shape[2:],
            formula.strides,
            formula.dilations,
            formula.pads[:half],
            formula.pads[half:],
            strict=True,
        )
        size = [
            max(0, (n + begin + end - dilation * (taps - 1) - 1) // stride + 1)
            for n, taps, stride, dilation, begin, end in axes
        ]
        channels = self.weight.shape[0]
        steps = [channels * math.prod(size[i + 1 :]) for i in range(half)]
        return TensorFacts(self.dtype(), (x[0], channels, *size), (channels * math.prod(size), 1, *steps))


def _why_not(job: _Job) -> str | None:
    rank = len(job.formula.strides)
    x = job.workload.inputs[0]
    reasons = (
        (not 1 <= rank <= _MAX_RANK, f"no convolution of {rank} spatial axes"),
        (job.weight.ndim != rank + 2, f"a weight of {list(job.weight.shape)} for {rank} spatial axes"),
        (len(x.shape) != rank + 2, f"an input of {list(x.shape)} for {rank} spatial axes"),
        (job.dtype() not in _BYTES, f"no convolution of {job.dtype()}"),
        (
            x.dtype == "float16" and "float32" in job.workload.outputs,
            "its sums are stored in float16, and an output is float32",
        ),
        (
            (x.dtype == "int8") != (job.weight.dtype == np.int8),
            f"an input of {x.dtype} for a weight of {job.weight.dtype}",
        ),
        (
            has_zero_point(job.formula.epilogue),
            "its input has a zero point: sums of codes are too large for float16, and the padding is 0",
        ),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def _floating(job: _Job) -> tuple[Draft, ...] | str:
    """Drafts for floats; why there are none."""
    fused = _fused(job)
    is_whole = fused.rest is None
    inputs = ("in0", "in1") if fused.has_residual else ("in0",)
    first = _convolution(job, inputs, "out0" if is_whole else _SUMS, fused)
    if fused.rest is None:
        return (first,)
    rest = _rest(job, fused.rest)
    return rest if isinstance(rest, str) else (first, *rest)


def _fused(job: _Job) -> _Fused:
    """What of the epilogue goes with the convolution."""
    split = split_bias(job.formula.epilogue)
    rest = split.rest
    if job.workload.outputs != (job.dtype(),):
        return _Fused(split.bias, rest=rest)
    if rest.is_identity:
        return _Fused(split.bias)
    if is_relu(rest):
        return _Fused(split.bias, has_relu=True)
    if is_residual_relu(rest):
        return _Fused(split.bias, has_residual=True, has_relu=True)
    return _Fused(split.bias, rest=rest)


def _dequantized(job: _Job) -> tuple[Draft, ...] | str:
    """Drafts for codes; why there are none.

    Codes of x are multiplied by a power of two that keeps every sum in float16's range, and the sums divided
    by it: both exact, so that only the rounding of the sums to float16 remains.
    """
    scale = power_of_two(math.prod(job.weight.shape[1:]))
    x = job.workload.inputs[0]
    multiply = Expression(
        (Operand("tensor"), Operand("scalar", value=scale)), (Instruction("mul", (0, 1)),), (2,), (False,)
    )
    before = _rows(job, multiply, (x,), ("float16",), {"in0": "in0", "out0": _CODES})
    after = _rest(job, scaled_accumulator(job.formula.epilogue, 1.0 / scale))
    if isinstance(before, str) or isinstance(after, str):
        return before if isinstance(before, str) else str(after)
    return (*before, _convolution(job, (_CODES,), _SUMS, _Fused()), *after)


def power_of_two(taps: int) -> float:
    """The largest that keeps sums of so many products of codes in float16's range; at most 1."""
    return float(2.0 ** -max(0, math.ceil(math.log2(max(1, taps) * _MAX_PRODUCT / _FLOAT16_MAX))))


def _rest(job: _Job, epilogue: Expression) -> tuple[Draft, ...] | str:
    """The epilogue over stored sums."""
    facts = (job.sums(), *job.workload.inputs[1:])
    return _rows(job, as_rows(epilogue), facts, job.workload.outputs, {"in0": _SUMS})


def _rows(
    job: _Job,
    expression: Expression,
    facts: tuple[TensorFacts, ...],
    outputs: tuple[str, ...],
    names: Mapping[str, str],
) -> tuple[Draft, ...] | str:
    """The first rows tactic's drafts on buffers that are called otherwise; why there is none."""
    return rows_drafts(
        job.workload,
        expression,
        facts,
        outputs=outputs,
        names=names,
        device=job.device,
        constants=by_channel(job.workload.constants, len(job.formula.strides)),
    )


def _convolution(job: _Job, inputs: tuple[str, ...], output: str, fused: _Fused) -> Draft:
    formula, dtype = job.formula, job.dtype()
    options: dict[str, Any] = {
        "strides": list(formula.strides),
        "dilations": list(formula.dilations),
        "pads": list(formula.pads),
        "groups": formula.groups,
        "dtype": dtype,
        "has_bias": bool(fused.bias),
        "has_residual": fused.has_residual,
        "has_relu": fused.has_relu,
        "is_benchmarked": False,
    }
    constants = [channels_last(formula.weight, job.weight, dtype)]
    if fused.bias:
        constants.append(bias_constant(job.workload, fused.bias, job.weight.shape[0], dtype))
    return Draft("convolution", inputs, (output,), options, tuple(constants))


def _benchmarked(draft: Draft) -> Draft:
    if draft.runner != "convolution":
        return draft
    return replace(draft, options={**draft.options, "is_benchmarked": True})


def _intermediate_bytes(job: _Job, drafts: Sequence[Draft]) -> int:
    """Of the buffers between the drafts; what cuDNN wants beside them is its own affair."""
    buffers = {name for draft in drafts for name in draft.outputs}
    sums = math.prod(job.sums().shape) * (_SUMS in buffers)
    codes = math.prod(job.workload.inputs[0].shape) * (_CODES in buffers)
    return (sums + codes) * _BYTES[job.dtype()]
