# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) of single pixels as a product, with the kernel of compute capability 9.0.

As runners/conv2d.py, for kernels of one element, strides of 1 and no borders. The weight's rows are in the
order of `kernels.gemm_hopper.spec.rows_in_order`, and there may be more than channels.
"""

from __future__ import annotations

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv2d import Conv2dRunner
from quantrt.runtime.cuda.runners.gemm_hopper import enqueue, programs_on

__all__ = ["open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _HopperConv2dRunner(step, assets)


class _HopperConv2dRunner(Conv2dRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._programs = programs_on(assets.device)

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        pixels = self._rows.x(x).permute(0, 2, 3, 1).reshape(-1, self._channels_in)
        enqueue(
            self._launch, pixels, self._weight, [*outputs, *self._operands.in_order(tensors)], self._programs
        )
        return []
