# SPDX-License-Identifier: Apache-2.0
"""epilogue(images with every pixel repeated) by our kernel; channels-last in and out.

options: {"formula": JSON of the Resize, "outputs": element types}. Inputs: x, then the tensor operands.
Weights: the constant operands, float32 [C] each.
"""

from __future__ import annotations

import math

from quantrt.plan.program import Step
from quantrt.regions.region import Resize
from quantrt.runtime.cuda.image_kernel import ImageKernel, Launch
from quantrt.runtime.cuda.runner import Assets, Runner
from quantrt.runtime.cuda.step_formula import formula_of

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _RepeatPixelsRunner(step, assets)


class _RepeatPixelsRunner(ImageKernel):
    def __init__(self, step: Step, assets: Assets) -> None:
        self._formula = formula_of(step, Resize)
        super().__init__(step, assets, self._formula.epilogue, 0, "resize the images")

    def _output_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        self._check(x, len(self._formula.scales) + 2, self._fixed["C"])
        return (*x[:2], *self._formula.output_size(x[2:]))

    def _launch_of(self, x: tuple[int, ...], y: tuple[int, ...]) -> Launch:
        pixels = y[0] * math.prod(y[2:])
        programs = -(-pixels // self._fixed["BLOCK_M"]) * -(-self._fixed["C"] // self._fixed["BLOCK_N"])
        return Launch(pixels, programs, (1, *y[2:])[-2:])
