# SPDX-License-Identifier: Apache-2.0
"""epilogue(x[..., K] @ w) with the kernel of compute capability 9.0; as runners/gemm.py, but for the weight.

Its rows are in the order of `kernels.gemm_hopper.spec.rows_in_order`, and there may be more than columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.runners.gemm import GemmRunner

__all__ = ["enqueue", "open_runner", "programs_on"]

Tensor = torch.Tensor

_ROW_BYTES = 16
"""Rows of x are multiples of it apart."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _GemmHopperRunner(step, assets)


def programs_on(device: torch.device) -> int:
    """One for every multiprocessor."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def enqueue(launch: Launcher, x: Tensor, weight: Tensor, others: Sequence[Any], programs: int) -> None:
    """Launch the kernel for x [M, K].

    Args:
        others: the outputs and the operands of the epilogue.
        programs: at most; fewer where there are fewer tiles.
    """
    fixed = dict(launch.spec.constants)
    M, columns = x.shape[0], int(fixed["N"]) * (2 if fixed["GATED"] else 1)
    tiles = -(-M // int(fixed["BLOCK_M"])) * -(-columns // int(fixed["BLOCK_N"]))
    if tiles:
        copied = sum(name in ("w_desc", "rest_desc") for name, _ in launch.spec.signature)
        launch((min(tiles, programs), 1, 1), [x, *(weight,) * copied, *others, M])


class _GemmHopperRunner(GemmRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._programs = programs_on(assets.device)

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        enqueue(self._launch, x, self._weight, [*outputs, *self._operands.in_order(tensors)], self._programs)
        return []

    def _columns(self) -> int:
        return int(self._fixed["N"]) * self._halves

    def _least_stride(self) -> int:
        return _ROW_BYTES // self._weight.element_size()
