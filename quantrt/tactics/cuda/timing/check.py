# SPDX-License-Identifier: Apache-2.0
"""Whether what a tactic computed is what the reference computed.

Codes are compared one for one where nothing in the computation depends on an order of additions or on
an approximated function. Elsewhere a code may be off by one, seldom: on the boundary between two codes, the
smallest difference before rounding is one afterwards. FP8's codes near 0 are so close to each other that a
difference of rms_ratio * rms(reference) counts for nothing there. Floats are compared within

    |output - reference| <= relative_ratio * |reference| + rms_ratio * rms(reference)

and NaN passes only where the reference is NaN too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from quantrt.dtypes import FP8
from quantrt.regions.region import (
    Concat,
    Conv,
    ConvTranspose,
    Gemm,
    GroupNorm,
    Pool,
    PooledConv,
    Resize,
    ResizedConv,
    Rows,
)
from quantrt.tactics.cuda.padding.live_rows import rows_that_count
from quantrt.tactics.cuda.tactic import CODED, DEQUANTIZED, Rejected, Tactic, Workload

__all__ = ["FLOAT_BOUNDS", "FloatBound", "check", "off_by_one_ratio", "poison"]

Tensor = torch.Tensor

APPROXIMATE_RATIO = 2e-3
"""Codes that may be off by one where float32 functions are approximated or sums reordered: a relative
difference of 2**-20 moves a value of 64 steps across a boundary once in 16000."""

FLOAT16_RATIO = 5e-2
"""The same where a product of floats was rounded to float16 on the way: half a unit of 2**-11 moves a value
of 64 steps across a boundary about once in 60, one of 128 steps once in 30."""


@dataclass(frozen=True)
class FloatBound:
    """How far a float may be off, see above."""

    relative_ratio: float
    rms_ratio: float


FLOAT_BOUNDS = {
    torch.float32: FloatBound(relative_ratio=1e-4, rms_ratio=1e-4),
    torch.float16: FloatBound(relative_ratio=4e-3, rms_ratio=4e-3),
    torch.bfloat16: FloatBound(relative_ratio=3e-2, rms_ratio=3e-2),
}
"""Eight roundings of the output's type (2**-11 and 2**-8 each); for float32, sums of thousands of terms in
any order, but not products of TF32."""

FP8_SUMS = FloatBound(relative_ratio=1e-2, rms_ratio=1e-2)
"""Of products of FP8, whose sums may have 14 bits. Cut to these with each 32 terms, not rounded, they lose
half of 2**-13 of their size every time: of normal factors they are off by 0.05 % of the results' size at K
= 1024, 0.13 % at 4096 and 0.20 % at 8192, by ten times as much where a sum was large and comes back. Of 512
terms at a time, added up in float32, they are off by 0.034 % and 0.25 % at any length, which passes. The
rounding of the factors, 2**-4 of each at most, is 2.6 % of their size on average."""

GATED_ROOM = 5.0
"""Times rms_ratio: how far codes of FP8 behind a gate may be off beyond a step. There a sum's error counts as
often as the other factor is large: of thirty million GEGLUs, and as many SwiGLUs, of normal sums that are off
by rms_ratio at most, 0.18 % in general, the largest error is 5.1 % of the products' size."""

CODED_RATIO = 0.1
"""Of attention over codes, the error's size over the result's. A factor in E4M3 is off by 2.6 % of its size
on average (2**-4 at most, evenly spread between two numbers), weight and value together by 3.7 %, and so is
their sum over many keys. Scores of E4M3 are off by as much of one product's size, which moves a weight by
3.7 %; those of int8, by rows and blocks whose largest of thousands is 4 times their size, by 1.2 %: 5.3 % at
most in all. An H200 gave 5.4 % with scores of E4M3, 3.8 % with those of int8, 1.1 % with values in fp16
(docs/results/cuda-attention8-h200.md)."""

CODED_ROW_RATIO = 0.3
"""The same of one query, where a few keys may weigh most."""

POISON = 0x55
"""In outputs of integers before a run, so that an element that is not written shows; NaN in floats."""


def poison(tensor: Tensor) -> Tensor:
    """The tensor, filled with what no tactic should leave there."""
    return tensor.fill_(float("nan") if tensor.is_floating_point() else POISON)


def off_by_one_ratio(workload: Workload, tactic: Tactic) -> float:
    """The share of integers that may be off by one; 0 where they must equal the reference's code for code."""
    if DEQUANTIZED in tactic.name.split():
        return FLOAT16_RATIO
    match workload.formula:
        case Gemm() if workload.inputs[0].dtype == FP8.name:
            return FLOAT16_RATIO
        case Gemm(epilogue=expression) | Conv(epilogue=expression) | ConvTranspose(epilogue=expression) if (
            workload.inputs[0].dtype == "int8"
        ):
            return 0.0 if expression.is_rounded else APPROXIMATE_RATIO
        case (
            PooledConv(convolution=Conv(epilogue=expression))
            | ResizedConv(convolution=Conv(epilogue=expression))
        ) if workload.inputs[0].dtype == "int8":
            return 0.0 if expression.is_rounded else APPROXIMATE_RATIO
        case Pool(kind=kind, epilogue=expression) if kind == "max" or workload.inputs[0].dtype == "int8":
            return 0.0 if expression.is_rounded else APPROXIMATE_RATIO
        case Resize(is_nearest=True, epilogue=expression):
            return 0.0 if expression.is_rounded else APPROXIMATE_RATIO
        case GroupNorm() if tactic.source == "triton":
            return APPROXIMATE_RATIO
        case Concat():
            return 0.0
        case Rows(expression):
            return 0.0 if expression.is_rounded else APPROXIMATE_RATIO
        case _:
            return FLOAT16_RATIO


def check(
    workload: Workload, tactic: Tactic, outputs: Sequence[Tensor], expected: Sequence[Tensor]
) -> Rejected | None:
    """Why the outputs of a tactic are not the expected ones; None where they are.

    Args:
        expected: of the reference, for the same inputs.
    """
    outputs, expected = (rows_that_count(workload, tensors) for tensors in (outputs, expected))
    if len(outputs) != len(expected):
        reason = f"gives {len(outputs)} outputs instead of {len(expected)}"
        return Rejected(tactic.source, tactic.name, reason)
    ratio = off_by_one_ratio(workload, tactic)
    is_coded = CODED in tactic.name.split()
    for number, (output, want) in enumerate(zip(outputs, expected, strict=True)):
        bound = _bound(workload, want.dtype)
        reason = (
            _coded_difference(output, want)
            if is_coded
            else _difference(output, want, ratio, bound, is_gated=_is_gated(workload))
        )
        if reason:
            return Rejected(tactic.source, tactic.name, f"output {number} {reason}")
    return None


def _bound(workload: Workload, dtype: torch.dtype) -> FloatBound | None:
    """How far floats of a type may be off; None where that is not known."""
    is_fp8 = isinstance(workload.formula, Gemm) and workload.inputs[0].dtype == FP8.name
    return FP8_SUMS if is_fp8 and dtype in FLOAT_BOUNDS else FLOAT_BOUNDS.get(dtype)


def _is_gated(workload: Workload) -> bool:
    return isinstance(workload.formula, Gemm) and workload.formula.is_gated


def _difference(
    output: Tensor, want: Tensor, ratio: float, bound: FloatBound | None, *, is_gated: bool
) -> str:
    """What is wrong with one output; empty when nothing is."""
    if output.shape != want.shape or output.dtype != want.dtype:
        return f"is {_text(output)} instead of {_text(want)}"
    if not want.numel():
        return ""
    if want.dtype == torch.float8_e4m3fn:
        return _fp8_difference(output, want, ratio, room=GATED_ROOM if is_gated else 0.0)
    if want.is_floating_point():
        return _float_difference(output, want, bound)
    return _code_difference(output, want, ratio)


def _coded_difference(output: Tensor, want: Tensor) -> str:
    """What is wrong with a result of attention over codes, stored as floats or as codes."""
    if output.shape != want.shape or output.dtype != want.dtype:
        return f"is {_text(output)} instead of {_text(want)}"
    if not want.numel():
        return ""
    step = 0.0 if want.is_floating_point() else 1.0
    got, ref = (x.double().reshape(-1, x.shape[-1] or 1) for x in (output, want))
    error, size = (got - ref).square().sum(1), ref.square().sum(1)
    # Both are rounded to codes: by up to a step in all, by 0.41 on average.
    is_near = error.sum() <= CODED_RATIO**2 * size.sum() + step * ref.numel() / 4
    is_far = ~(error.sqrt() <= CODED_ROW_RATIO * size.sqrt() + step * ref.shape[1] ** 0.5)
    if is_near and not is_far.any():  # a NaN is neither
        return ""
    ratio = float((error.sum() / size.sum().clamp(min=1e-300)).sqrt())
    rows = f"{int(is_far.sum())} of {len(ref)} rows by much"
    return f"differs from the reference by {ratio:.2g} of its size, {rows}"


def _code_difference(output: Tensor, want: Tensor, ratio: float) -> str:
    distance = (output.to(torch.int64) - want.to(torch.int64)).abs()
    wrong, largest = torch.stack([(distance != 0).sum(), distance.max()]).tolist()
    if not wrong:
        return ""
    if largest <= 1 and ratio and wrong <= max(1, int(ratio * want.numel())):
        return ""
    return f"differs from the reference in {wrong} of {want.numel()} codes, by up to {largest}"


def _fp8_difference(output: Tensor, want: Tensor, ratio: float, room: float) -> str:
    """What is wrong with codes of FP8; with a ratio of 0 each must be the reference's.

    Args:
        room: see GATED_ROOM.
    """
    got, ref = output.float(), want.float()
    rms = ref.nan_to_num(nan=0.0).square().mean().sqrt()
    is_off = torch.where(ref.isnan(), ~got.isnan(), ~(got == ref))
    distance = (_place(output) - _place(want)).abs()
    is_far = is_off & ((distance > 1) | got.isnan())
    if ratio:
        error, unit = (got - ref).abs(), FP8_SUMS.rms_ratio * rms
        is_off &= ~(error <= unit)
        is_far &= ~(error <= unit)
        if room:
            is_far &= ~(error <= torch.maximum(_step(got), _step(ref)) + room * unit)
    wrong, far, largest = torch.stack(
        [is_off.sum(), is_far.sum(), torch.where(is_off, distance, 0).max()]
    ).tolist()
    if not wrong or (not far and wrong <= int(ratio * want.numel())):
        return ""
    return f"differs from the reference in {wrong} of {want.numel()} codes, by up to {largest}"


def _step(values: Tensor) -> Tensor:
    """From each number of E4M3 to the next larger one: 3 bits of mantissa, exponents from -6 on."""
    return torch.exp2(torch.frexp(values.abs().clamp(min=2.0**-6)).exponent.float() - 4)


def _place(codes: Tensor) -> Tensor:
    """Which number of FP8 each is, counted from 0 in both directions."""
    bits = codes.view(torch.uint8).to(torch.int64)
    size = bits & 0x7F
    return torch.where(bits > 0x7F, -size, size)


def _float_difference(output: Tensor, want: Tensor, bound: FloatBound | None) -> str:
    if bound is None:
        return f"has a type without a bound, {_text(want)}"
    limit = torch.finfo(want.dtype).max  # overflow to infinity is a rounding of a number just below it
    got, ref = (tensor.double().clamp(-limit, limit) for tensor in (output, want))
    is_number = ~ref.isnan()
    rms = torch.where(is_number, ref, 0.0).square().sum().div(is_number.sum().clamp(min=1)).sqrt()
    allowed = bound.relative_ratio * ref.abs() + bound.rms_ratio * rms
    error = (got - ref).abs()
    wrong = torch.where(is_number, ~(error <= allowed), ~got.isnan())
    count, nans = torch.stack([wrong.sum(), (got.isnan() & is_number).sum()]).tolist()
    if not count:
        return ""
    if nans:
        return f"has {nans} NaN or unwritten elements of {want.numel()}"
    worst = float(torch.where(is_number, error / rms.clamp(min=1e-300), 0.0).nan_to_num(0.0).max())
    return (
        f"differs from the reference in {count} of {want.numel()} elements, by up to {worst:.2g} of its rms"
    )


def _text(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
