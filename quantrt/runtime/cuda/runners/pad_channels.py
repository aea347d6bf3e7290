# SPDX-License-Identifier: Apache-2.0
"""x with channels of zeros behind its own, channels-last, for kernels that load several channels at once.

options: {"channels": how many there are afterwards}. Input: x [N, C, *size] of one or two spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _PadRunner(step, assets)


class _PadRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._region = step.region
        self._channels = int(step.options["channels"])
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        constants = dict(self._launch.spec.constants)
        self._given, self._block = int(constants["C"]), int(constants["BLOCK_M"])

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        x: torch.Tensor = inputs[0]
        if x.dim() not in (3, 4) or x.shape[1] != self._given:
            raise DataError(
                f"cannot pad the channels of region '{self._region}'",
                got=f"an input of {list(x.shape)}",
                expected=f"3 or 4 axes, {self._given} channels on the second",
            )
        flat = x if x.dim() == 4 else x.unsqueeze(2)
        images, _, height, width = flat.shape
        if height > 1 and flat.stride(2) != width * flat.stride(3):  # pixels are not evenly spaced
            flat = flat.contiguous()
        y = allocate(0, (images, self._channels, height, width), x.dtype, channels_last=True)
        M = images * height * width
        if M:
            strides = (flat.stride(0), flat.stride(1), flat.stride(3))
            self._launch((-(-M // self._block), 1, 1), [flat, y, M, height * width, *strides])
        return [y if x.dim() == 4 else y.squeeze(2)]
