# SPDX-License-Identifier: Apache-2.0
"""x with borders of one code, channels-last, for convolutions without padding of their own.

options: none; the borders are constants of the kernel. Input: x [N, C, *size] of one or two spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.epilogue import channels_last
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner

__all__ = ["open_runner"]

_MAX_PIXELS = 2**31 - 1


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _BorderRunner(step, assets)


class _BorderRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._region = step.region
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        constants = dict(self._launch.spec.constants)
        self._channels = int(constants["C"])
        self._height = int(constants["TOP"]) + int(constants["BOTTOM"])
        self._width = int(constants["LEFT"]) + int(constants["RIGHT"])
        self._blocks = int(constants["BLOCK_M"]), int(constants["BLOCK_C"])

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        x: torch.Tensor = inputs[0]
        if x.dim() not in (3, 4) or x.shape[1] != self._channels:
            raise self._error(f"an input of {list(x.shape)}", f"3 or 4 axes, {self._channels} channels")
        flat = channels_last(x if x.dim() == 4 else x.unsqueeze(2))
        images, channels, height, width = flat.shape
        shape = (images, channels, height + self._height, width + self._width)
        y = allocate(0, shape, x.dtype, channels_last=True)
        M = images * shape[2] * shape[3]
        if M > _MAX_PIXELS:
            raise self._error(f"{M} pixels", f"at most {_MAX_PIXELS}")
        if M:
            block_m, block_c = self._blocks
            self._launch((-(-M // block_m), -(-channels // block_c), 1), [flat, y, M, height, width])
        return [y if x.dim() == 4 else y.squeeze(2)]

    def _error(self, got: str, expected: str) -> DataError:
        return DataError(f"cannot add borders in region '{self._region}'", got=got, expected=expected)
