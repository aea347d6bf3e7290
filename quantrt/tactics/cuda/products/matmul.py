# SPDX-License-Identifier: Apache-2.0
"""Products by cuBLASLt through torch, with the part of the epilogue that it takes; rows kernels do the rest.

cuBLASLt stores a product of floats in their own type, so what remains of the epilogue begins with a rounding
more than in one kernel; sums of int8 codes it stores as int32, exactly. Sums of FP8 codes it stores as
float16, times a power of two that keeps them in range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from quantrt.dtypes import FP8
from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import MAX_CODE_TERMS
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.runtime.cuda.reference.evaluate import evaluate
from quantrt.runtime.cuda.runners.matmul import MIN_CODE_ROWS
from quantrt.tactics.cuda.forms.epilogues import (
    as_rows,
    has_zero_point,
    is_relu,
    scaled_accumulator,
    split_bias,
)
from quantrt.tactics.cuda.memory_bound.rows_drafts import rows_drafts
from quantrt.tactics.cuda.products.product import Product, product_of
from quantrt.tactics.cuda.tactic import (
    DEQUANTIZED,
    Draft,
    Rejected,
    Tactic,
    TensorFacts,
    Workload,
    dense_strides,
)

__all__ = ["list_library_tactics"]

_SOURCE = "cublaslt"
_NAME = "matmul"
_CODES = "codes"
_SUMS = "sums"
_HALVES = ("left half", "right half")
"""Buffers between drafts: codes of x as floats, what the product's step stores, and of a gate its halves."""

_CODE_MULTIPLE = 8
"""torch._int_mm wants N and K to be multiples of this."""

_FP8_MULTIPLE = 16
"""torch._scaled_mm wants N and K to be multiples of this."""

_FLOAT16_MAX = 65504.0
_MAX_PRODUCT = {"int8": 128 * 127, FP8.name: 448 * 448}
_SUM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4}

_GELU_TOLERANCE = 1e-5
"""Between two spellings of GELU in float32; its tanh form differs from that with erf by up to 4.7e-4."""


@dataclass(frozen=True)
class _Fused:
    """What the product's step computes, and the expression over what it stores.

    Attributes:
        rest: None where nothing remains.
    """

    bias: str = ""
    activation: str = ""
    rest: Expression | None = None

    @property
    def name(self) -> str:
        """As tactics are named: "matmul + bias + relu, rows"."""
        parts = [_NAME, *(["bias"] if self.bias else []), *([self.activation] if self.activation else [])]
        return " + ".join(parts) + (", rows" if self.rest is not None else "")


def list_library_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """One tactic, with as much of the epilogue in the product as the library takes; or why there is none.

    Of FP8 two, with fast sums and with precise ones. Where the library does not multiply the codes, a second
    one multiplies them as float16, "dequantized".
    """
    product = product_of(workload)
    if isinstance(product, str):
        return [Rejected(_SOURCE, _NAME, product)]
    if product.dtype == "float16" and "float32" in workload.outputs:
        return [Rejected(_SOURCE, _NAME, "its sums are stored in float16, and an output is float32")]
    reason = _why_not_codes(product, device) if product.is_codes else None
    if reason:
        rejected = Rejected(_SOURCE, _NAME, reason)
        return [rejected] if product.formula.is_gated else [rejected, _dequantized(product, device)]
    if product.dtype == FP8.name:
        return [_scaled(product, device, is_fast=is_fast) for is_fast in (True, False)]
    fused = _fused(product)
    stored = "int32" if product.is_codes else product.dtype
    first = _draft(product, fused, stored)
    if fused.rest is None:
        return [Tactic(_SOURCE, fused.name, (first,))]
    rest = _rest(product, fused.rest, stored, device)
    if isinstance(rest, str):
        return [Rejected(_SOURCE, fused.name, rest)]
    return [Tactic(_SOURCE, fused.name, (first, *rest), product.M * product.columns * _SUM_BYTES[stored])]


def _scaled(product: Product, device: GpuFacts, *, is_fast: bool) -> Tactic | Rejected:
    """FP8 codes by torch._scaled_mm.

    Args:
        is_fast: sums stay in the tensor cores, with 14 bits on Hopper; otherwise they are promoted.
    """
    name = f"{_NAME} fast, rows" if is_fast else f"{_NAME}, rows"
    stored, scale = ("float32", 1.0) if product.formula.is_gated else ("float16", _in_range(product))
    epilogue = product.formula.epilogue
    rest = _rest(
        product, epilogue if scale == 1.0 else scaled_accumulator(epilogue, 1.0 / scale), stored, device
    )
    if isinstance(rest, str):
        return Rejected(_SOURCE, name, rest)
    first = _draft(product, _Fused(rest=epilogue), stored)
    first = replace(first, options={**first.options, "scale": scale, "is_fast": is_fast})
    return Tactic(_SOURCE, name, (first, *rest), product.M * product.columns * _SUM_BYTES[stored])


def _in_range(product: Product) -> float:
    """The largest power of two that times any sum of products of codes is in float16's range; at most 1."""
    largest = product.K * _MAX_PRODUCT[product.dtype]
    return float(2.0 ** -max(0, math.ceil(math.log2(largest / _FLOAT16_MAX))))


def _dequantized(product: Product, device: GpuFacts) -> Tactic | Rejected:
    """Codes multiplied as float16.

    Codes of x are multiplied by a power of two that keeps every sum in float16's range, and the sums divided
    by it: both exact, so that only the rounding of the sums to float16 remains.
    """
    name = f"{_NAME} {DEQUANTIZED}"
    if has_zero_point(product.formula.epilogue):
        return Rejected(_SOURCE, name, "its input has a zero point: sums of codes are too large for float16")
    scale = _in_range(product)
    multiply = Expression(
        (Operand("tensor"), Operand("scalar", value=scale)), (Instruction("mul", (0, 1)),), (2,), (False,)
    )
    x = product.workload.inputs[0]
    before = _rows(product, multiply, (x,), ("float16",), names={"out0": _CODES}, device=device)
    floats = replace(product, dtype="float16")
    epilogue = scaled_accumulator(product.formula.epilogue, 1.0 / scale)
    after = _rest(floats, epilogue, "float16", device)
    if isinstance(before, str) or isinstance(after, str):
        return Rejected(_SOURCE, name, before if isinstance(before, str) else str(after))
    multiplied = replace(_draft(floats, _Fused(rest=epilogue), "float16"), inputs=(_CODES,))
    size_bytes = _SUM_BYTES["float16"] * product.M * (product.K + product.N)
    return Tactic(_SOURCE, name, (*before, multiplied, *after), size_bytes)


def _why_not_codes(product: Product, device: GpuFacts) -> str | None:
    """What torch checks before it calls cuBLASLt (aten/src/ATen/native/cuda/Blas.cpp)."""
    N, K = product.columns, product.K
    if product.dtype == FP8.name:
        if not device.has_fp8_tensor_cores:
            return f"no fp8 products on compute capability {device.capability}: 89 is the least"
        is_multiple = N % _FP8_MULTIPLE == 0 and K % _FP8_MULTIPLE == 0
        return None if is_multiple else f"a weight of {N} by {K}: multiples of {_FP8_MULTIPLE} for fp8"
    reasons = (
        (not device.has_int8_tensor_cores, f"no int8 products on compute capability {device.capability}"),
        (product.M < MIN_CODE_ROWS, f"{product.M} rows: at least {MIN_CODE_ROWS} for int8"),
        (
            N % _CODE_MULTIPLE != 0 or K % _CODE_MULTIPLE != 0,
            f"a weight of {N} by {K}: multiples of {_CODE_MULTIPLE} for int8",
        ),
        (K > MAX_CODE_TERMS, f"int32 sums of {K} products of codes can overflow: at most {MAX_CODE_TERMS}"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)


def _fused(product: Product) -> _Fused:
    """What of the epilogue goes with the product."""
    epilogue = product.formula.epilogue
    if product.formula.is_gated or product.is_codes or product.workload.outputs != (product.dtype,):
        return _Fused(rest=epilogue)
    split = split_bias(epilogue)
    if split.rest.is_identity:
        return _Fused(split.bias)
    if split.bias and is_relu(split.rest):
        return _Fused(split.bias, "relu")
    if split.bias and _is_gelu_tanh(split.rest):
        return _Fused(split.bias, "gelu_tanh")
    return _Fused(rest=epilogue)


def _is_gelu_tanh(expression: Expression) -> bool:
    """Whether the only output is GELU of operand 0 in its tanh form, however it is spelled: by its values."""
    kinds = [operand.kind for operand in expression.operands]
    is_plain = kinds[0] == "accumulator" and set(kinds[1:]) <= {"scalar"} and not expression.has_row
    if not is_plain or len(expression.outputs) != 1:
        return False
    x = torch.linspace(-8.0, 8.0, 1025)
    (y,) = evaluate(expression, x, (), {})
    expected = torch.nn.functional.gelu(x, approximate="tanh")
    return bool(((y - expected).abs() <= _GELU_TOLERANCE).all())


def _draft(product: Product, fused: _Fused, stored: str) -> Draft:
    """The product's own step. Weights in float32, which are the model's, stay as they lie in its file."""
    stays = product.dtype == "float32"
    constants = [product.weight_as_it_lies() if stays else product.weight_constant()]
    if fused.bias:
        constants.append(product.channel_constant(fused.bias, product.dtype))
    options = {"output": stored, "has_bias": bool(fused.bias), "activation": fused.activation}
    output = "out0" if fused.rest is None else _SUMS
    runner = "matmul_columns_last" if stays and not product.formula.is_transposed else "matmul"
    return Draft(runner, ("in0",), (output,), options, tuple(constants))


def _rest(product: Product, epilogue: Expression, stored: str, device: GpuFacts) -> Sequence[Draft] | str:
    """Drafts for the epilogue over stored sums; why there are none."""
    workload = product.workload
    whole = (*workload.inputs[0].shape[:-1], product.columns)
    sums = TensorFacts(stored, (*whole[:-1], product.N), dense_strides(whole))
    if not product.formula.is_gated:
        facts = (sums, *workload.inputs[1:])
        return _rows(product, as_rows(epilogue), facts, workload.outputs, names={"in0": _SUMS}, device=device)
    facts = (sums, sums, *workload.inputs[1:])
    others = {f"in{number}": f"in{number - 1}" for number in range(2, len(facts))}
    names = {"in0": _HALVES[0], "in1": _HALVES[1], **others}
    after = _rows(product, as_rows(epilogue), facts, workload.outputs, names=names, device=device)
    return after if isinstance(after, str) else [Draft("halves", (_SUMS,), _HALVES), *after]


def _rows(
    product: Product,
    expression: Expression,
    facts: tuple[TensorFacts, ...],
    outputs: tuple[str, ...],
    *,
    names: Mapping[str, str],
    device: GpuFacts,
) -> Sequence[Draft] | str:
    """The first rows tactic's drafts, with some buffers called otherwise; why there is none."""
    flat = {name: array.reshape(-1) for name, array in product.workload.constants.items()}
    return rows_drafts(
        product.workload, expression, facts, outputs=outputs, names=names, device=device, constants=flat
    )
