# SPDX-License-Identifier: Apache-2.0
"""epilogue(transposed convolution of x) where every pixel becomes a block, by our kernel; channels-last.

options: {"formula": JSON of the ConvTranspose, "outputs": element types}. Inputs: x, then the tensor
operands. Weights: the weight [*kernel, C_out, C_in], then the constant operands, float32 [C_out] each.
"""

from __future__ import annotations

import math

from quantrt.plan.program import Step
from quantrt.regions.region import ConvTranspose
from quantrt.runtime.cuda.image_kernel import ImageKernel, Launch
from quantrt.runtime.cuda.runner import Assets, Runner
from quantrt.runtime.cuda.step_formula import formula_of

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _SpreadRunner(step, assets)


class _SpreadRunner(ImageKernel):
    def __init__(self, step: Step, assets: Assets) -> None:
        self._formula = formula_of(step, ConvTranspose)
        super().__init__(step, assets, self._formula.epilogue, 1, "compute the transposed convolution")

    def _output_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        self._check(x, len(self._formula.kernel) + 2, self._fixed["K"])
        return (x[0], self._fixed["C"], *self._formula.output_size(x[2:]))

    def _launch_of(self, x: tuple[int, ...], y: tuple[int, ...]) -> Launch:
        fixed = self._fixed
        pixels = x[0] * math.prod(x[2:])
        columns = -(-fixed["S"] * fixed["C"] // fixed["BLOCK_N"])
        return Launch(pixels, -(-pixels // fixed["BLOCK_M"]) * columns * fixed["R"], x[-1:])
