# SPDX-License-Identifier: Apache-2.0
"""epilogue(x[..., K] @ w) with the kernel of compute capability 9.0; as runners/gemm.py, but for the weight.

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
    return _GemmHopperRunner(step, assets)


class _GemmHopperRunner(GemmRunner):
    """One program for every multiprocessor, or as many as there are tiles."""

    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._programs = torch.cuda.get_device_properties(assets.device).multi_processor_count

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        M = x.shape[0]
        if M > 0:
            arguments = [x, self._weight, *outputs, *self._arguments(tensors), M]
            self._launch((min(self._tiles(x), self._programs), 1, 1), arguments)
        return []

    def _columns(self) -> int:
        return int(self._fixed["N"])

    def _least_stride(self) -> int:
        return _ROW_BYTES // self._weight.element_size()
