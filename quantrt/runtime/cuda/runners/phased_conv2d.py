# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) of repeated pixels as convolutions of phases; see kernels/conv_hopper/phases.py.

As runners/conv_hopper.py, but for the weight: [N, *kernel, C], floats or codes, as runners/conv2d.py has it.
What meets the same pixel is added up when the step is opened, so that files hold no sums.
"""

from __future__ import annotations

import numpy as np
import torch

from quantrt.errors import InternalError
from quantrt.kernels.conv_hopper.phases import Axis, axis_of
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Assets, Runner
from quantrt.runtime.cuda.runners.conv_hopper import ConvHopperRunner

__all__ = ["open_runner", "sums_of"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _PhasedConv2dRunner(step, assets)


class _PhasedConv2dRunner(ConvHopperRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        (top, left), (bottom, right) = self._pads
        axes = [
            axis_of(self._kernel[i], self._dilations[i], pads, self._repeats[i])
            for i, pads in enumerate(((top, bottom), (left, right)))
        ]
        if axes[0] is None or axes[1] is None:
            raise InternalError(f"the phases of region '{step.region}' are of different sizes")
        dtype = torch.bfloat16 if self._weight.dtype == torch.bfloat16 else torch.float16
        sums = sums_of(self._weight, (axes[0], axes[1])).to(dtype)
        run = int(dict(self._launch.spec.constants)["RUN"])
        self._weight = _in_order(sums.reshape(len(sums), -1), run)


def sums_of(weight: Tensor, axes: tuple[Axis, Axis]) -> Tensor:
    """[N, phases, *taps of a phase, C], float32, of a weight [N, *kernel, C]."""
    vertical, horizontal = axes
    counts = len(vertical.places), len(horizontal.places)
    taps = vertical.taps, horizontal.taps
    found = weight.new_zeros((len(weight), *counts, *taps, weight.shape[-1]), dtype=torch.float32)
    for i, lines in enumerate(vertical.places):
        for j, columns in enumerate(horizontal.places):
            for r, line in enumerate(lines):
                for s, column in enumerate(columns):
                    found[:, i, j, line, column] += weight[:, r, s]
    return found.flatten(1, 2)


def _in_order(rows: Tensor, run: int) -> Tensor:
    """The rows as `rows_in_order` puts them; those that it adds are zeros."""
    numbers = rows_in_order(np.arange(1, len(rows) + 1)[:, None], run).reshape(-1)
    padded = torch.cat((rows.new_zeros((1, rows.shape[1])), rows))
    return padded[torch.from_numpy(numbers).to(rows.device)]
