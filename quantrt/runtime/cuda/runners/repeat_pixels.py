# SPDX-License-Identifier: Apache-2.0
"""epilogue(images with every pixel repeated) by our kernel; channels-last in and out.

options: {"formula": JSON of the Resize, "outputs": element types}. Inputs: x, then the tensor operands.
Weights: the constant operands, float32 [C] each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quantrt.plan.program import Step
from quantrt.regions.region import Resize
from quantrt.runtime.cuda.operands.image_kernel import ImageKernel, Launch
from quantrt.runtime.cuda.operands.step_formula import formula_of
from quantrt.runtime.cuda.runner import Assets, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    formula = formula_of(step, Resize)
    sizes = _RepeatedSizes(formula, dict(assets.kernels[step.kernels[0]].spec.constants))
    return ImageKernel(step, assets, formula.epilogue, sizes, doing="resize the images")


@dataclass(frozen=True)
class _RepeatedSizes:
    """See ImageSizes; `fixed`: the kernel's constants."""

    formula: Resize
    fixed: Mapping[str, Any]

    @property
    def rank(self) -> int:
        return len(self.formula.scales) + 2

    @property
    def channels(self) -> int:
        return int(self.fixed["C"])

    def output_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return (*x[:2], *self.formula.output_size(x[2:]))

    def launch_of(self, x: tuple[int, ...], y: tuple[int, ...]) -> Launch:
        pixels = y[0] * math.prod(y[2:])
        programs = -(-pixels // self.fixed["BLOCK_M"]) * -(-self.channels // self.fixed["BLOCK_N"])
        return Launch(pixels, programs, (1, *y[2:])[-2:])
