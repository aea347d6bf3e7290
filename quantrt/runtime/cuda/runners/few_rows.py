# SPDX-License-Identifier: Apache-2.0
"""epilogue(x[..., K] @ w) with the kernel for few rows; as runners/gemm.py, but for the weight.

Its rows are in the order of `kernels.gemm_hopper.spec.rows_in_order`, and there may be more than columns.
"""

from __future__ import annotations

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
    return _FewRowsRunner(step, assets)


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
