# SPDX-License-Identifier: Apache-2.0
"""Images resized by torch, channels-last; no epilogue.

options: {"formula": JSON of the Resize, "dtype": numpy's name of the float type that is stored}. Input: x,
floats or int8 codes, which every float type holds exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from quantrt.errors import DataError, DeviceError
from quantrt.plan.program import Step
from quantrt.regions.region import Resize
from quantrt.runtime.cuda.operands.epilogue import channels_last
from quantrt.runtime.cuda.operands.step_formula import formula_of
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

_LINEAR = ("linear", "bilinear", "trilinear")


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _InterpolationRunner(step, assets)


class _InterpolationRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._region = step.region
        self._formula = formula_of(step, Resize)
        self._dtype = torch_dtype(step.options["dtype"])
        # Torch interpolates halves in float32, on a CPU not at all.
        self._computed = self._dtype if assets.device.type == "cuda" else torch.float32

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the result is torch's own, channels-last."""
        x: torch.Tensor = inputs[0]
        formula = self._formula
        rank = len(formula.scales)
        mode = "nearest" if formula.is_nearest else _LINEAR[rank - 1]
        corners = None if formula.is_nearest else formula.has_corners
        try:
            y = functional.interpolate(
                x.to(self._computed), scale_factor=list(formula.scales), mode=mode, align_corners=corners
            )
            return [channels_last(y.to(self._dtype))]
        except torch.OutOfMemoryError as error:
            message = f"not enough memory to resize the images of region '{self._region}'"
            raise DeviceError(message, got=str(list(x.shape)), hint="a smaller batch") from error
        except (RuntimeError, ValueError, NotImplementedError) as error:
            message = f"cannot resize the images of region '{self._region}' of {list(x.shape)}"
            raise DataError(message, got=str(error)) from error
