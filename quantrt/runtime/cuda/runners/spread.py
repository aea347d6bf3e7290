# SPDX-License-Identifier: Apache-2.0
"""epilogue(transposed convolution of x) where every pixel becomes a block, by our kernel; channels-last.

options: {"formula": JSON of the ConvTranspose, "outputs": element types}. Inputs: x, then the tensor
operands. Weights: the weight [*kernel, C_out, C_in], then the constant operands, float32 [C_out] each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quantrt.plan.program import Step
from quantrt.regions.region import ConvTranspose
from quantrt.runtime.cuda.operands.image_kernel import ImageKernel, Launch
from quantrt.runtime.cuda.operands.step_formula import formula_of
from quantrt.runtime.cuda.runner import Assets, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    formula = formula_of(step, ConvTranspose)
    sizes = _SpreadSizes(formula, dict(assets.kernels[step.kernels[0]].spec.constants))
    doing = "compute the transposed convolution"
    return ImageKernel(step, assets, formula.epilogue, sizes, weights=1, doing=doing)


@dataclass(frozen=True)
class _SpreadSizes:
    """See ImageSizes; `fixed`: the kernel's constants."""

    formula: ConvTranspose
    fixed: Mapping[str, Any]

    @property
    def rank(self) -> int:
        return len(self.formula.kernel) + 2

    @property
    def channels(self) -> int:
        return int(self.fixed["K"])

    def output_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return (x[0], self.fixed["C"], *self.formula.output_size(x[2:]))

    def launch_of(self, x: tuple[int, ...], y: tuple[int, ...]) -> Launch:
        pixels = x[0] * math.prod(x[2:])
        columns = -(-self.fixed["S"] * self.fixed["C"] // self.fixed["BLOCK_N"])
        programs = -(-pixels // self.fixed["BLOCK_M"]) * columns * self.fixed["R"]
        return Launch(pixels, programs, x[-1:])
