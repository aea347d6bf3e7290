# SPDX-License-Identifier: Apache-2.0
"""epilogue(x[..., K] @ w) with sums in parts; as runners/gemm.py, but for scratch memory, the last output.

Kernels: the one that makes the parts, then the one that adds them.
"""

from __future__ import annotations

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.runners.gemm import GemmRunner

__all__ = ["add_parts", "open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _SplitGemmRunner(step, assets)


class _SplitGemmRunner(GemmRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._add = assets.kernels[step.kernels[1]]

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        M, splits = x.shape[0], int(self._fixed["SPLITS"])
        dtype = torch.int32 if x.dtype == torch.int8 else torch.float32
        parts = allocate(len(outputs), (splits, M, self._weight.shape[0]), dtype)
        if M > 0:
            arguments = [x, self._weight, parts, M, self._stride_units(x)]
            self._launch((self._tiles(x), splits, 1), arguments)
            add_parts(self._add, parts, [*outputs, *self._operands.in_order(tensors)])
        return [parts]


def add_parts(launch: Launcher, parts: Tensor, arguments: list[object]) -> None:
    """Launch the kernel that adds parts [splits, M, N].

    Args:
        arguments: the outputs and the operands of the epilogue.
    """
    fixed = dict(launch.spec.constants)
    _, M, N = parts.shape
    tiles = -(-M // int(fixed["BLOCK_M"])) * -(-N // int(fixed["BLOCK_N"]))
    launch((tiles, 1, 1), [parts, *arguments, M])
