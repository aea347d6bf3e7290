# SPDX-License-Identifier: Apache-2.0
"""Transposed convolution of x and w, plus a bias, through torch: cuDNN on a GPU; channels-last, 1-D to 3-D.

options: {"formula": JSON of the ConvTranspose, "dtype": numpy's name of the float type that it computes in
and stores, "has_bias"}. Input: x. Weights: the weight [C_in, *kernel, C_out / groups] in that type, then the
bias if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from quantrt.errors import DataError, DeviceError
from quantrt.plan.program import Step
from quantrt.regions.region import ConvTranspose
from quantrt.runtime.cuda.operands.epilogue import channels_last
from quantrt.runtime.cuda.operands.step_formula import formula_of
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

Tensor = torch.Tensor

_CONVOLUTIONS = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _TransposedConvolutionRunner(step, assets)


class _TransposedConvolutionRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._region = step.region
        self._formula = formula_of(step, ConvTranspose)
        self._dtype = torch_dtype(step.options["dtype"])
        self._weight = assets.weights[step.weights[0]].movedim(-1, 1)
        self._bias = assets.weights[step.weights[1]] if step.options["has_bias"] else None
        # Sums on a CPU are in float32, rounded once, as cuDNN's are.
        self._sums = self._dtype if assets.device.type == "cuda" else torch.float32

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the result is torch's own, channels-last."""
        x: Tensor = inputs[0]
        try:
            y = self._convolve(channels_last(x).to(self._sums)).to(self._dtype)
            return [channels_last(y)]
        except torch.OutOfMemoryError as error:
            message = f"not enough memory for the transposed convolution of region '{self._region}'"
            raise DeviceError(message, got=str(list(x.shape)), hint="a smaller batch") from error
        except (RuntimeError, ValueError) as error:
            message = (
                f"cannot compute the transposed convolution of region '{self._region}' of {list(x.shape)}"
            )
            raise DataError(message, got=str(error)) from error

    def _convolve(self, x: Tensor) -> Tensor:
        """Where torch cannot cut the ends as they are to be cut, they are cut off its result."""
        formula = self._formula
        rank = len(formula.kernel)
        convolve = _CONVOLUTIONS[rank - 1]
        begins, ends = formula.pads[:rank], formula.pads[rank:]
        extra = [a - b + c for a, b, c in zip(begins, ends, formula.output_padding, strict=True)]
        limits = [max(pair) for pair in zip(formula.strides, formula.dilations, strict=True)]
        is_whole = all(0 <= a < b for a, b in zip(extra, limits, strict=True))
        pads, more = (begins, tuple(extra)) if is_whole else ((0,) * rank, (0,) * rank)
        weight = self._weight.to(self._sums)
        bias = None if self._bias is None else self._bias.to(self._sums)
        y: Tensor = convolve(x, weight, bias, formula.strides, pads, more, formula.groups, formula.dilations)
        if is_whole:
            return y
        sizes = formula.output_size(tuple(x.shape[2:]))
        for axis, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
            missing = max(0, begin + size - y.shape[2 + axis])
            if missing:  # output_padding beyond the last window: the bias alone is there
                raise RuntimeError(f"an output padding of {formula.output_padding}")
            y = y.narrow(2 + axis, begin, size)
        return y
