# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) with our kernel that gives every thread a patch of pixels; channels-last, 1-D and 2-D.

options, inputs and weights: as runners/conv2d.py has them.
"""

from __future__ import annotations

import torch

from quantrt.kernels.depthwise_patches.spec import MAX_PATCHES
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv2d import Conv2dRunner

__all__ = ["open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _DepthwisePatchesRunner(step, assets)


class _DepthwisePatchesRunner(Conv2dRunner):
    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        images, _, P, Q = outputs[0].shape
        if outputs[0].numel():
            fixed = dict(self._launch.spec.constants)
            patches = -(-P // fixed["ROWS"]) * -(-Q // fixed["COLUMNS"]) * (self._channels // fixed["VECTOR"])
            programs = -(-images * patches // fixed["BLOCK"])
            if programs * fixed["BLOCK"] > MAX_PATCHES:
                raise self._error(f"{images * patches} patches", f"at most {MAX_PATCHES}", "a smaller batch")
            arguments = [self._rows.x(x), self._weight, *outputs, *self._operands.in_order(tensors)]
            self._launch((programs, 1, 1), [*arguments, images * P * Q, *x.shape[2:], P, Q])
        return []
