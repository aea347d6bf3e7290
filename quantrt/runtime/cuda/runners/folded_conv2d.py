# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) with strides, of few channels: squares of pixels are folded into channels first.

As runners/conv_hopper.py; the weight is that of what is folded, and the last output is scratch memory for it.
Kernels: the convolution's, then the one that folds; see kernels/fold_pixels. options of its own: {"before":
numbers of what x goes through when it is folded; absent where it is folded as it is}.
"""

from __future__ import annotations

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv_hopper import ConvHopperRunner

__all__ = ["PixelFolding", "open_runner"]

Tensor = torch.Tensor

_NO_STRIDES = (1, 1)


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _FoldedConv2dRunner(step, assets)


class PixelFolding:
    """The second kernel of a step, which folds pixels.

    Attributes:
        width: elements of a folded pixel.
        taps: folded pixels of a window's line.
    """

    def __init__(self, step: Step, assets: Assets) -> None:
        self._launch = assets.kernels[step.kernels[1]]
        fixed = dict(self._launch.spec.constants)
        self.width, self.taps, self._block = (int(fixed[name]) for name in ("WIDTH", "TAPS", "BLOCK"))
        self._numbers = [float(number) for number in step.options.get("before", ())]

    def run(self, x: Tensor, folded: Tensor) -> None:
        """Fill folded pixels [images, U, V, width]."""
        images, U, V, _ = folded.shape
        M = images * U * V
        arguments = [x, folded, *self._numbers, M, U, V, *x.shape[2:], *x.stride()]
        self._launch((-(-M // self._block), 1, 1), arguments)


class _FoldedConv2dRunner(ConvHopperRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._folding = PixelFolding(step, assets)
        self._lines = int(dict(self._launch.spec.constants)["R"])

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        images, _, P, Q = outputs[0].shape
        width, taps = self._folding.width, self._folding.taps
        U, V = P + self._lines - 1, Q + taps - 1
        folded = allocate(len(outputs), (images, U, V, width), self._weight.dtype)
        if outputs[0].numel():
            self._folding.run(x, folded)
            steps = (U * V * width, V * width, width, 1)
            windows = folded.as_strided((images, U, Q, taps * width), steps)
            self._launch_windows(windows, _NO_STRIDES, tensors, outputs)
        return [folded]
