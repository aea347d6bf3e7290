# SPDX-License-Identifier: Apache-2.0
"""Maxima and means over windows or whole images by torch, channels-last; no epilogue.

options: {"formula": JSON of the Pool, "dtype": numpy's name of the float type that it computes in and
stores}. Input: x, floats or int8 codes, which every float type holds exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from quantrt.errors import DataError, DeviceError
from quantrt.kernels.spatial import as_pair
from quantrt.plan.program import Step
from quantrt.regions.region import Pool
from quantrt.runtime.cuda.operands.step_formula import formula_of
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _PoolingRunner(step)


class _PoolingRunner:
    def __init__(self, step: Step) -> None:
        self._region = step.region
        self._formula = formula_of(step, Pool)
        self._dtype = torch_dtype(step.options["dtype"])

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the result is torch's own, channels-last."""
        x: Tensor = inputs[0]
        try:
            return [self._pooled(x.to(self._dtype))]
        except torch.OutOfMemoryError as error:
            message = f"not enough memory for the pool of region '{self._region}'"
            raise DeviceError(message, got=str(list(x.shape)), hint="a smaller batch") from error
        except (RuntimeError, IndexError) as error:
            message = f"cannot compute the pool of region '{self._region}' of {list(x.shape)}"
            raise DataError(message, got=str(error)) from error

    def _pooled(self, x: Tensor) -> Tensor:
        if self._formula.is_global:
            axes, keeps = list(range(2, x.dim())), self._formula.keeps_axes
            is_max = self._formula.kind == "max"
            return x.amax(axes, keepdim=keeps) if is_max else x.mean(axes, keepdim=keeps)
        flat = x if x.dim() == 4 else x.unsqueeze(2)
        y = self._windowed(flat.contiguous(memory_format=torch.channels_last))
        y = y.contiguous(memory_format=torch.channels_last)
        return y if x.dim() == 4 else y.squeeze(2)

    def _windowed(self, x: Tensor) -> Tensor:
        """Padding is the same on both sides of an axis."""
        formula = self._formula
        rank = len(formula.kernel)
        kernel, strides = as_pair(formula.kernel, 1), as_pair(formula.strides, 1)
        pads = as_pair(formula.pads[:rank], 0)
        if formula.kind == "max":
            dilations = as_pair(formula.dilations, 1)
            y: Tensor = functional.max_pool2d(x, kernel, strides, pads, dilations, formula.has_ceil)
            return y
        return functional.avg_pool2d(x, kernel, strides, pads, formula.has_ceil, formula.counts_padding)
