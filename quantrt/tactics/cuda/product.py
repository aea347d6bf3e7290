# SPDX-License-Identifier: Apache-2.0
"""A product with a weight, as all of its tactics see it: sizes, types, and constants as kernels read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quantrt.regions.region import Gemm
from quantrt.tactics.cuda.tactic import Constant, Workload

__all__ = ["Product", "product_of"]

_TYPES = ("int8", "float16", "float32")
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True)
class Product:
    """x[M, K] @ w[K, N] of int8 codes or of floats.

    Attributes:
        weight: as the formula has it, [N, K] or [K, N].
        M: at the shapes that are timed.
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
        """Whether int8 codes are multiplied."""
        return self.dtype == "int8"

    def weight_constant(self) -> Constant:
        """The weight as [N, K], contiguous along K; float32 rounded to float16 for float16 activations."""
        rows = self.weight if self.formula.is_transposed else self.weight.T
        key = f"{self.formula.weight}:nk:{self.dtype}"
        return Constant(key, lambda: np.ascontiguousarray(rows.astype(self.dtype)))

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
    N, K = weight.shape if formula.is_transposed else weight.shape[::-1]
    if x.shape[-1:] != (K,):
        return f"an input of {list(x.shape)} for a weight of {list(weight.shape)}"
    if x.dtype not in _TYPES or (x.dtype == "int8") != (weight.dtype == np.int8):
        return f"an input of {x.dtype} for a weight of {weight.dtype}"
    if x.dtype == "float16" and float(np.abs(weight).max()) > _FLOAT16_MAX:
        return "a weight beyond float16's range"
    return Product(workload, formula, weight, math.prod(x.shape[:-1]), N, K, x.dtype)
