# SPDX-License-Identifier: Apache-2.0
"""epilogue(pool(x)) with one of our kernels; channels-last in and out.

options: {"formula": JSON of the Pool, "outputs": element types}. Inputs: x, then the tensor operands.
Weights: the constant operands, float32 [C] each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quantrt.kernels.spatial import as_pair
from quantrt.plan.program import Step
from quantrt.regions.region import Pool
from quantrt.runtime.cuda.operands.image_kernel import ImageKernel, Launch
from quantrt.runtime.cuda.operands.step_formula import formula_of
from quantrt.runtime.cuda.runner import Assets, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    formula = formula_of(step, Pool)
    sizes = _PoolSizes(formula, dict(assets.kernels[step.kernels[0]].spec.constants))
    return ImageKernel(step, assets, formula.epilogue, sizes, doing="compute the pool")


@dataclass(frozen=True)
class _PoolSizes:
    """See ImageSizes; `fixed`: the kernel's constants."""

    formula: Pool
    fixed: Mapping[str, Any]

    @property
    def rank(self) -> int | None:
        return None if self.formula.is_global else len(self.formula.kernel) + 2

    @property
    def channels(self) -> int:
        return int(self.fixed["N"])

    def output_shape(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return self.formula.output_shape(x)

    def launch_of(self, x: tuple[int, ...], y: tuple[int, ...]) -> Launch:
        pixels = y[0] * math.prod(y[2:])
        columns = -(-self.channels // int(self.fixed["BLOCK_N"]))
        if self.formula.is_global:
            return Launch(pixels, pixels * columns, (math.prod(x[2:]),))
        rows = -(-pixels // int(self.fixed["BLOCK_M"]))
        return Launch(pixels, rows * columns, (*as_pair(x[2:], 1), *as_pair(y[2:], 1)))
