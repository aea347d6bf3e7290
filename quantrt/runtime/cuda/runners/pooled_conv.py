# SPDX-License-Identifier: Apache-2.0
"""max pool(epilogue(conv(x, w))) of a first layer, of windows of 3 by 3 in steps of 2, by one kernel.

As runners/folded_conv2d.py; a line of folded pixels begins BEFORE of them further left. See
kernels/pooled_conv.
"""

from __future__ import annotations

import torch

from quantrt.kernels.pooled_conv.spec import BEFORE, PAIRS, SEGMENTS, segments_of
from quantrt.plan.program import Step
from quantrt.runtime.cuda.device.tensor_maps import Boxes
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv2d import Conv2dRunner
from quantrt.runtime.cuda.runners.folded_conv2d import PixelFolding

__all__ = ["open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _PooledConvRunner(step, assets)


class _PooledConvRunner(Conv2dRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._folding = PixelFolding(step, assets)
        fixed = dict(self._launch.spec.constants)
        self._taps_of_column, self._lines = int(fixed["R"]), int(fixed["LINES"])

    def _output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        P, Q = super()._output_size(size)
        if P % 2 or Q % 2:
            raise self._error(f"{P} lines of {Q} sums", "even numbers of both", "another size of images")
        return P // 2, Q // 2

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        images, _, P, Q = outputs[0].shape
        width, channels = self._folding.width, self._folding.taps * self._folding.width
        U, V = 2 * P + self._taps_of_column - 1, BEFORE + 2 * Q + self._folding.taps - 1
        # The last segment of a line may reach into the next one, so there is one behind the last.
        lines = allocate(len(outputs), (images * U + 1, V, width), self._weight.dtype)
        if outputs[0].numel():
            folded = lines[: images * U].view(images, U, V, width)
            self._folding.run(x, folded)
            segments = segments_of(Q)
            steps = (V * width, 2 * (PAIRS - 1) * width, width, 2 * width, 1)
            windows = folded.as_strided((images * U, segments, 2, PAIRS, channels), steps)
            block = (1, SEGMENTS, 2, PAIRS, channels)
            grid = -(-segments // SEGMENTS), -(-P // self._lines), images
            operands = [*outputs, *self._operands.in_order(tensors)]
            self._launch(grid, [Boxes(windows, block, (1,) * 5), self._weight, *operands, P, Q, U])
        return [lines]
