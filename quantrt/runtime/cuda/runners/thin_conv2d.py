# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) of at most four channels with our kernel; channels-last out, 1-D and 2-D.

options: as runners/conv2d.py has them, and "programs": how many of them the device holds at once. Inputs: x
in any strides, then the tensor operands. Outputs: the region's, then scratch memory. Kernels: the product,
then what copies x with its borders. Weights: the weight [N, lines of a window, elements of a line] with its
zeros, then the constant operands, float32 [N] each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv2d import Conv2dRunner

__all__ = ["open_runner"]

Tensor = torch.Tensor

_PIXEL = 4
"""Channels of x as it is copied."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _ThinConv2dRunner(step, assets)


class _ThinConv2dRunner(Conv2dRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._add_borders = assets.kernels[step.kernels[1]]
        self._programs = int(step.options["programs"])
        self._constants_of = dict(self._launch.spec.constants)

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        fixed = self._constants_of
        images, _, P, Q = outputs[0].shape
        if not outputs[0].numel():
            return [allocate(len(outputs), (0,), x.dtype)]
        tiles_p, tiles_q = -(-P // fixed["TILE_P"]), -(-Q // fixed["TILE_Q"])
        lines, elements = self._bordered_size(tiles_p, tiles_q, fixed)
        bordered = allocate(len(outputs), (images, lines, elements), x.dtype)
        self._copy(x, bordered)
        columns = -(-self._channels // fixed["BLOCK_N"])
        programs = min(images * tiles_p * tiles_q, max(1, self._programs // columns))
        arguments = [bordered, self._weight, *outputs, *self._operands.in_order(tensors)]
        sizes = images, P, Q, lines, elements // fixed["LINE_UNIT"]
        self._launch((programs, columns, 1), [*arguments, *sizes])
        return [bordered]

    def _bordered_size(self, tiles_p: int, tiles_q: int, fixed: Mapping[str, Any]) -> tuple[int, int]:
        """Lines, and elements of one, that the windows of whole tiles reach."""
        first, count = fixed["LINES"][-1]
        lines = (tiles_p * fixed["TILE_P"] - 1) * self._strides[0] + first + count
        elements = (tiles_q * fixed["TILE_Q"] - 1) * self._strides[1] * _PIXEL + fixed["WIDTH"]
        return lines, -(-elements // fixed["LINE_UNIT"]) * fixed["LINE_UNIT"]

    def _copy(self, x: Tensor, bordered: Tensor) -> None:
        fixed = dict(self._add_borders.spec.constants)
        images, lines, elements = bordered.shape
        blocks = -(-elements // (_PIXEL * fixed["BLOCK"]))
        sizes = *x.shape[2:], lines, elements // fixed["LINE_UNIT"]
        self._add_borders((images * lines, blocks, 1), [x, bordered, *sizes, *x.stride()])
