# SPDX-License-Identifier: Apache-2.0
"""epilogue(x[..., K] @ w) with the kernel for few rows; as runners/gemm.py, but for the weights.

Weights: the weight, its rows in the order of `kernels.gemm_hopper.spec.rows_in_order`, of a product of
normalized rows the sums of these, float32, then the constant operands.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.gemm import GemmRunner

__all__ = ["open_runner"]

Tensor = torch.Tensor

_ROW_BYTES = 16
"""Rows of x are multiples of it apart."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    is_normed = bool(dict(assets.kernels[step.kernels[0]].spec.constants)["NORM"])
    return _NormedRunner(step, assets) if is_normed else _FewRowsRunner(step, assets)


class _FewRowsRunner(GemmRunner):
    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        if x.shape[0] > 0:
            arguments = [x, self._weight, *outputs, *self._operands.in_order(tensors), x.shape[0]]
            self._launch((self._tiles(x), 1, 1), arguments)
        return []

    def _columns(self) -> int:
        return int(self._fixed["N"]) * self._halves

    def _least_stride(self) -> int:
        return _ROW_BYTES // self._weight.element_size()


class _NormedRunner(_FewRowsRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        weight, sums, *others = step.weights
        super().__init__(replace(step, weights=(weight, *others)), assets)
        self._sums = assets.weights[sums]

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        if x.shape[0] > 0:
            operands = [self._sums, *outputs, *self._operands.in_order(tensors)]
            sizes = x.shape[0], self._stride_units(x)
            self._launch((self._tiles(x), 1, 1), [x, self._weight, x, *operands, *sizes])
        return []

    def _least_stride(self) -> int:
        return int(self._fixed["STRIDE_UNIT"])
