# SPDX-License-Identifier: Apache-2.0
"""epilogue(x[..., K] @ w) with a weight in 4 bits; as runners/gemm.py, but for the weight, in parts or not.

Weights: the words [blocks, columns, block / 4] of `kernels.gemm_w4a16.spec.packed`, the scales of the groups,
their zero points where the kernel reads them, then the constant operands. Kernels: the product's; of one in
parts also the one that adds them, and the parts are the last output.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.gemm import GemmRunner
from quantrt.runtime.cuda.runners.split_gemm import add_parts

__all__ = ["open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _GroupedGemmRunner(step, assets)


class _GroupedGemmRunner(GemmRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        has_zeros = dict(assets.kernels[step.kernels[0]].spec.constants)["HAS_ZEROS"]
        words, *others = step.weights
        factors, constants = others[: 1 + has_zeros], others[1 + has_zeros :]
        super().__init__(replace(step, weights=(words, *constants)), assets)
        self._read = [self._weight, *(assets.weights[key] for key in factors)]
        self._splits = int(self._fixed["SPLITS"])
        self._add = assets.kernels[step.kernels[1]] if self._splits > 1 else None

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        M = x.shape[0]
        sizes = M, self._stride_units(x)
        finished = [*outputs, *self._operands.in_order(tensors)]
        if self._add is None:
            if M > 0:
                self._launch((self._tiles(x), 1, 1), [x, *self._read, *finished, *sizes])
            return []
        parts = allocate(len(outputs), (self._splits, M, self._columns()), torch.float32)
        if M > 0:
            self._launch((self._tiles(x), self._splits, 1), [x, *self._read, parts, *sizes])
            add_parts(self._add, parts, finished)
        return [parts]

    def _columns(self) -> int:
        return self._weight.shape[1]

    def _reads(self) -> tuple[torch.dtype, int]:
        return torch.float16, int(self._fixed["K"])
