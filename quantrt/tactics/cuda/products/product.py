# SPDX-License-Identifier: Apache-2.0
"""A product with a weight, as all of its tactics see it: sizes, types, and constants as kernels read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quantrt.dtypes import CODE_TYPES, FP8
from quantrt.kernels.gemm.spec import MAX_STRIDE_UNIT, GemmProblem
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.regions.region import Gemm
from quantrt.tactics.cuda.forms.rounded import rounded
from quantrt.tactics.cuda.tactic import Constant, TensorFacts, Workload

__all__ = ["Product", "problem_of", "product_of"]

_TYPES = ("int8", FP8.name, "float16", "bfloat16", "float32")
_CODES = frozenset(row.name for row in CODE_TYPES)
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True)
class Product:
    """x[M, K] @ w[K, N] of codes of one type or of floats.

    Attributes:
        weight: as the formula has it, [columns, K] or [K, columns].
        M: at the shapes that are timed.
        N: columns of the result: half of the product's where it is a gate's.
        dtype: of x, in which w is multiplied too.
    """

    workload: Workload
    formula: Gemm
    weight: np.ndarray
    M: int
    N: int
    K: int
    dtype: str

    @property
    def is_codes(self) -> bool:
        """Whether codes are multiplied."""
        return self.dtype in _CODES

    @property
    def columns(self) -> int:
        """Of the product."""
        return 2 * self.N if self.formula.is_gated else self.N

    def weight_constant(self, *, in_turns: bool = False, run: int = 0) -> Constant:
        """The weight as [columns, K], contiguous along K; float32 rounded to float16 for such activations.

        Args:
            in_turns: a row of the left half, then one of the right, and so on.
            run: for the kernel of compute capability 9.0: see `rows_in_order`; 0 for all others.
        """

        def make() -> np.ndarray:
            rows = self.weight if self.formula.is_transposed else self.weight.T
            if in_turns:
                rows = rows.reshape(2, self.N, self.K).swapaxes(0, 1).reshape(-1, self.K)
            rows = rounded(rows, self.dtype)
            return rows_in_order(rows, run, self.dtype) if run else np.ascontiguousarray(rows, self.dtype)

        order = ("turns" if in_turns else "nk") + (f" run{run}" if run else "")
        return Constant(f"{self.formula.weight}:{order}:{self.dtype}", make)

    def weight_as_it_lies(self) -> Constant:
        """The weight in the layout that it has, [columns, K] or [K, columns]: nothing is moved."""
        order = "nk" if self.formula.is_transposed else "kn"
        return Constant(
            f"{self.formula.weight}:{order}:{self.dtype}",
            lambda: np.ascontiguousarray(rounded(self.weight, self.dtype), self.dtype),
        )

    def channel_constant(self, name: str, dtype: str) -> Constant:
        """A constant operand of the epilogue as [N]."""
        array = self.workload.constants[name].reshape(-1)
        key = f"{name}:n:{dtype}"
        return Constant(key, lambda: np.array(np.broadcast_to(array, (self.N,)), dtype))


def product_of(workload: Workload) -> Product | str:
    """The product of a workload, or why it is none that a kernel could multiply."""
    formula, weight = workload.formula, workload.weight
    if not isinstance(formula, Gemm) or weight is None:
        return f"the formula is {type(formula).__name__}, not a product with a weight"
    x = workload.inputs[0]
    if weight.ndim != 2 or not weight.size:
        return f"a weight of {list(weight.shape)}"
    columns, K = weight.shape if formula.is_transposed else weight.shape[::-1]
    if formula.is_gated and columns % 2:
        return f"a gate of {columns} columns"
    N = columns // 2 if formula.is_gated else columns
    if x.shape[-1:] != (K,):
        return f"an input of {list(x.shape)} for a weight of {list(weight.shape)}"
    kinds = {x.dtype, str(weight.dtype)}
    if x.dtype not in _TYPES or (kinds & _CODES and len(kinds) > 1):
        return f"an input of {x.dtype} for a weight of {weight.dtype}"
    if x.dtype == "float16" and workload.largest_weight > _FLOAT16_MAX:
        return "a weight beyond float16's range"
    return Product(workload, formula, weight, math.prod(x.shape[:-1]), N, K, x.dtype)


def problem_of(product: Product) -> GemmProblem:
    """What our kernel would compute."""
    x, *tensors = product.workload.inputs
    return GemmProblem(
        M=product.M,
        N=product.N,
        K=product.K,
        dtype=product.dtype,
        stride_unit=math.gcd(MAX_STRIDE_UNIT, product.K, _row_stride(x)),
        epilogue=product.formula.epilogue,
        tensors=tuple(facts.dtype for facts in tensors),
        outputs=product.workload.outputs,
        is_gated=product.formula.is_gated,
        per_row=tuple(n for n, facts in enumerate(tensors) if facts.shape[-1:] == (1,) and product.N > 1),
    )


def _row_stride(x: TensorFacts) -> int:
    """Elements from one row to the next; 0, which all numbers divide, where there is one row."""
    axes = zip(reversed(x.shape[:-1]), reversed(x.strides[:-1]), strict=True)
    return next((stride for size, stride in axes if size > 1), 0)
