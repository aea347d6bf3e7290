# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) with the kernel of compute capability 9.0 that copies windows in boxes.

As runners/conv2d.py, but for the weight: [rows, R * S * C], its rows in the order of
`kernels.gemm_hopper.spec.rows_in_order`, and there may be more than channels.
"""

from __future__ import annotations

import math

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.device.tensor_maps import Boxes
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv2d import Conv2dRunner
from quantrt.runtime.cuda.runners.gemm_hopper import programs_on

__all__ = ["ConvHopperRunner", "open_runner"]

Tensor = torch.Tensor

_MAX_OFFSET = 2**31 - 1
"""Elements that one box of pixels may span."""

_ONE_PHASE = (1, 1)


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return ConvHopperRunner(step, assets)


class ConvHopperRunner(Conv2dRunner):
    """A convolution whose kernel takes x, channels-last, as windows in boxes."""

    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        fixed = dict(self._launch.spec.constants)
        self._programs = programs_on(assets.device) * int(fixed["NEIGHBOURS"])
        self._box = tuple(int(n) for n in fixed["BOX"])
        self._tile = int(fixed["BLOCK_N"]), int(fixed["BLOCK_K"])
        self._further_lines = (int(fixed["TAPS"]) - 1) * int(fixed["DILATIONS"][0])
        self._phases = tuple(int(n) for n in fixed.get("PHASES", _ONE_PHASE))

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        self._launch_windows(self._rows.x(x).permute(0, 2, 3, 1), self._strides, tensors, outputs)
        return []

    def _launch_windows(
        self, pixels: Tensor, strides: tuple[int, int], tensors: list[Tensor], outputs: list[Tensor]
    ) -> None:
        """The kernel for images [images, H, W, C]."""
        images, _, P, Q = outputs[0].shape
        block_n, block_k = self._tile
        if self._box[0] * P * Q * self._channels > _MAX_OFFSET:
            expected = f"at most {_MAX_OFFSET} elements in {self._box[0]} images"
            raise self._error(f"an output of {list(outputs[0].shape)}", expected, "smaller images")
        P, Q = P // self._phases[0], Q // self._phases[1]  # of one phase
        tiles = -(-self._channels // block_n) * math.prod(self._phases)
        for size, length in zip((images, P, Q), self._box, strict=True):
            tiles *= -(-size // length)
        count, lines, columns = self._box
        block = (count, lines + self._further_lines, columns, block_k)
        windows = Boxes(pixels, block, (1, *strides, 1))
        operands = [*outputs, *self._operands.in_order(tensors)]
        self._launch((min(tiles, self._programs), 1, 1), [windows, self._weight, *operands, images, P, Q])
