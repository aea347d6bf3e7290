# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) with sums in parts; as runners/conv2d.py, but for scratch memory, the last output.

Kernels: the one that makes the parts, then the one that adds them.
"""

from __future__ import annotations

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv2d import Conv2dRunner
from quantrt.runtime.cuda.runners.split_gemm import add_parts

__all__ = ["open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _SplitConv2dRunner(step, assets)


class _SplitConv2dRunner(Conv2dRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._add = assets.kernels[step.kernels[1]]

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        fixed = dict(self._launch.spec.constants)
        M, N, splits = outputs[0].numel() // self._channels, self._channels, int(fixed["SPLITS"])
        dtype = torch.int32 if x.dtype == torch.int8 else torch.float32
        parts = allocate(len(outputs), (splits, M, N), dtype)
        if M > 0:
            tiles = -(-M // int(fixed["BLOCK_M"])) * -(-N // int(fixed["BLOCK_N"]))
            sizes = M, *x.shape[2:], *outputs[0].shape[2:]
            self._launch((tiles, splits, 1), [self._rows.x(x), self._weight, parts, *sizes])
            add_parts(self._add, parts, [*outputs, *self._operands.in_order(tensors)])
        return [parts]
