# SPDX-License-Identifier: Apache-2.0
"""epilogue(norm(x)[..., K] @ w) with the kernel that normalizes as it multiplies; as runners/gemm.py.

Weights: the weight, its rows in the order of `kernels.gemm_hopper.spec.rows_in_order`, the sums of these
rows, float32, then the constant operands.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.gemm import GemmRunner

__all__ = ["open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _NormedGemmRunner(step, assets)


class _NormedGemmRunner(GemmRunner):
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

    def _columns(self) -> int:
        return int(self._fixed["N"])
