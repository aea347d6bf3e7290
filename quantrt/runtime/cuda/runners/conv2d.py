# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) with one of our kernels; channels-last in and out, 1-D and 2-D.

options: {"kernel", "strides", "dilations": one number per spatial axis, "pads": begins, then ends,
"channels": of x and of the output, "kinds": kind of every operand behind the accumulator, "scalars": values
of the scalar ones, "outputs": element types, "groups": of channels, where there are more than one, "repeats":
how often every line and every column of x is repeated before it is convolved, where they are, and those of
pixel_rows.py}. Inputs: x, then the tensor operands. Weights: the weight in the kernel's layout, of groups
without the zeros between them, then the constant operands, float32 [N] each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.kernels.spatial import as_pair
from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.epilogue import EpilogueOperands
from quantrt.runtime.cuda.operands.pixel_rows import PixelRows
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["Conv2dRunner", "open_runner"]

Tensor = torch.Tensor

_MAX_PIXELS = 2**31 - 1


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return Conv2dRunner(step, assets)


class Conv2dRunner:
    """A convolution whose kernel takes x, channels-last, as it is."""

    def __init__(self, step: Step, assets: Assets) -> None:
        options = step.options
        self._region = step.region
        self._rank = len(options["kernel"])
        self._kernel = as_pair(options["kernel"], 1)
        self._strides = as_pair(options["strides"], 1)
        self._dilations = as_pair(options["dilations"], 1)
        begins, ends = options["pads"][: self._rank], options["pads"][self._rank :]
        self._pads = as_pair(begins, 0), as_pair(ends, 0)
        self._repeats = as_pair(options.get("repeats", [1] * self._rank), 1)
        self._channels_in, self._channels = (int(n) for n in options["channels"])
        self._outputs = tuple(torch_dtype(name) for name in options["outputs"])
        self._rows = PixelRows(step)
        weight, *constants = (assets.weights[key] for key in step.weights)
        self._weight = _in_blocks(weight, int(options.get("groups", 1)))
        self._operands = EpilogueOperands(options["kinds"], options["scalars"], constants)
        self._launch: Launcher = assets.kernels[step.kernels[0]]

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; outputs are channels-last."""
        self._check(inputs)
        images, _, *size = inputs[0].shape
        height, width = as_pair(size, 1)
        P, Q = self._output_size((height, width))
        shape = (images, self._channels, P, Q)
        flat = [self._as_2d(tensor) for tensor in inputs]
        for tensor in flat[1:]:
            if tensor.shape != shape:
                raise self._error(f"a residual of {list(tensor.shape)}", f"{list(shape)}")
        outputs = [
            self._rows.allocate(allocate, number, shape, dtype) for number, dtype in enumerate(self._outputs)
        ]
        M = images * P * Q
        if M > _MAX_PIXELS:
            raise self._error(f"{M} output pixels", f"at most {_MAX_PIXELS}", "a smaller batch")
        scratch = self._enqueue(flat[0], self._rows.tensors(flat[1:]), outputs, allocate)
        return [*(outputs if self._rank == 2 else [output.squeeze(2) for output in outputs]), *scratch]

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        """Launch the kernels for x of two spatial axes; the memory they need beside the outputs."""
        M = outputs[0].numel() // self._channels
        if M > 0:
            constants = dict(self._launch.spec.constants)
            arguments = [self._rows.x(x), self._weight, *outputs, *self._operands.in_order(tensors)]
            tiles = -(-M // constants["BLOCK_M"]) * -(-self._channels // constants["BLOCK_N"])
            self._launch((tiles, 1, 1), [*arguments, M, *x.shape[2:], *outputs[0].shape[2:]])
        return []

    def _output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        begins, ends = self._pads
        rows, columns = (
            max(
                0,
                (
                    size[i] * self._repeats[i]
                    + begins[i]
                    + ends[i]
                    - self._dilations[i] * (self._kernel[i] - 1)
                    - 1
                )
                // self._strides[i]
                + 1,
            )
            for i in range(2)
        )
        return rows, columns

    def _as_2d(self, tensor: Tensor) -> Tensor:
        return tensor if self._rank == 2 else tensor.unsqueeze(2)

    def _check(self, inputs: Sequence[Any]) -> None:
        x = inputs[0]
        if x.dim() != self._rank + 2 or x.shape[1] != self._channels_in:
            expected = f"{self._rank + 2} axes, {self._channels_in} channels on the second"
            raise self._error(f"an input of {list(x.shape)}", expected)

    def _error(self, got: str, expected: str, hint: str | None = None) -> DataError:
        message = f"cannot compute the convolution of region '{self._region}'"
        return DataError(message, got=got, expected=expected, hint=hint)


def _in_blocks(weight: Tensor, groups: int) -> Tensor:
    """The weight of groups, [N, ..., channels of one], as that of all channels: zeros for those of others."""
    if groups == 1:
        return weight
    N, *kernel, depth = weight.shape
    blocks = weight.new_zeros((groups, N // groups, math.prod(kernel), groups, depth))
    own = torch.arange(groups, device=weight.device)
    blocks[own, :, :, own] = weight.reshape(groups, N // groups, -1, depth)
    return blocks.reshape(N, *kernel, groups * depth)
