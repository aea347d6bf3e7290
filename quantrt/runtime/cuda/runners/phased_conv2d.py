# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) of repeated pixels as convolutions of phases; see kernels/phases.

As runners/conv2d.py, or runners/conv_hopper.py where the kernel is that one's. The weight is that of whole
windows, floats or codes: what meets the same pixel is added up when the step is opened, so that files hold no
sums.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from quantrt.errors import InternalError
from quantrt.kernels.gemm_hopper.spec import rows_in_order
from quantrt.kernels.phases.spec import Axis, axis_of
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv2d import Conv2dRunner
from quantrt.runtime.cuda.runners.conv_hopper import ConvHopperRunner

__all__ = ["open_runner", "sums_of"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    family = assets.kernels[step.kernels[0]].spec.family
    return _Windows(step, assets) if family == "conv_hopper" else _Pixels(step, assets)


class _Windows(ConvHopperRunner):
    """Whose kernel takes windows in boxes."""

    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        sums = _sums(step, self._weight)
        run = int(dict(self._launch.spec.constants)["RUN"])
        self._weight = _in_order(sums.reshape(len(sums), -1), run)


class _Pixels(Conv2dRunner):
    """Whose kernel gathers pixels."""

    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._weight = _sums(step, self._weight)

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        images, _, height, width = outputs[0].shape
        P, Q = height // self._repeats[0], width // self._repeats[1]
        M = images * P * Q
        if M > 0:
            fixed = dict(self._launch.spec.constants)
            tiles = -(-M // fixed["BLOCK_M"]) * -(-self._channels // fixed["BLOCK_N"])
            operands = [self._rows.x(x), self._weight, *outputs, *self._operands.in_order(tensors)]
            grid = (tiles * math.prod(self._repeats), 1, 1)
            self._launch(grid, [*operands, M, *x.shape[2:], P, Q])
        return []


def _sums(step: Step, weight: Tensor) -> Tensor:
    """Of the step's weight, in halves; bfloat16 stays that."""
    options = step.options
    begins, ends = options["pads"][:2], options["pads"][2:]
    rows = zip(
        options["kernel"],
        options["dilations"],
        zip(begins, ends, strict=True),
        options["repeats"],
        strict=True,
    )
    vertical, horizontal = (axis_of(*row) for row in rows)
    if vertical is None or horizontal is None:
        raise InternalError(f"the phases of region '{step.region}' are of different sizes")
    dtype = torch.bfloat16 if weight.dtype == torch.bfloat16 else torch.float16
    return sums_of(weight, (vertical, horizontal)).to(dtype)


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
