# SPDX-License-Identifier: Apache-2.0
"""(x + shift - mean) / sqrt(variance + epsilon) over groups of channels by torch, channels-last; no epilogue.

options: {"formula": JSON of the GroupNorm}. Inputs: x, floats, then the shift if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from quantrt.errors import DataError, DeviceError
from quantrt.plan.program import Step
from quantrt.regions.region import GroupNorm
from quantrt.runtime.cuda.operands.epilogue import channels_last
from quantrt.runtime.cuda.operands.step_formula import formula_of
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _GroupNormalizationRunner(step)


class _GroupNormalizationRunner:
    def __init__(self, step: Step) -> None:
        self._region = step.region
        self._formula = formula_of(step, GroupNorm)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the result is torch's own, channels-last."""
        x: torch.Tensor = inputs[0]
        try:
            shifted = x if self._formula.shift is None else x + inputs[1]
            y = functional.group_norm(shifted, self._formula.groups, eps=self._formula.epsilon)
            return [channels_last(y)]
        except torch.OutOfMemoryError as error:
            message = f"not enough memory for the norm of region '{self._region}'"
            raise DeviceError(message, got=str(list(x.shape)), hint="a smaller batch") from error
        except (RuntimeError, ValueError) as error:
            message = f"cannot compute the norm of region '{self._region}' of {list(x.shape)}"
            raise DataError(message, got=str(error)) from error
