# SPDX-License-Identifier: Apache-2.0
"""One kernel over the pixels of channels-last images, with the whole epilogue inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from quantrt.errors import DataError
from quantrt.plan.program import Step
from quantrt.regions.expression import Expression
from quantrt.runtime.cuda.operands.epilogue import EpilogueOperands
from quantrt.runtime.cuda.operands.pixel_rows import PixelRows
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["ImageKernel", "ImageSizes", "Launch"]

Shape = tuple[int, ...]

_MAX_PIXELS = 2**31 - 1


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched for one shape.

    Attributes:
        pixels: that programs walk, of all images; the kernel's first number.
        programs: on the first axis of the grid.
        sizes: the numbers behind `pixels`.
    """

    pixels: int
    programs: int
    sizes: tuple[int, ...]


class ImageSizes(Protocol):
    """What is its own in such a kernel: which images it takes and makes, and its grid."""

    @property
    def rank(self) -> int | None:
        """Axes of its input; None: any number from 3 on."""

    @property
    def channels(self) -> int:
        """Of its input."""

    def output_shape(self, x: Shape) -> Shape:
        """For an input of such a shape."""

    def launch_of(self, x: Shape, y: Shape) -> Launch:
        """For an input and outputs of such shapes."""


class ImageKernel:
    """A runner of such a kernel: its arguments are x, weights, outputs, the epilogue's operands, numbers.

    Args:
        step: its options have "outputs", element types, and those of pixel_rows.py; its weights are the
            kernel's, then the constant operands, float32 [C] each; its inputs x, then the tensor operands.
        weights: how many the kernel has of its own.
        doing: what it does, as in "cannot ... of region 'conv1'".
    """

    def __init__(
        self,
        step: Step,
        assets: Assets,
        epilogue: Expression,
        sizes: ImageSizes,
        *,
        weights: int = 0,
        doing: str,
    ) -> None:
        found = [assets.weights[key] for key in step.weights]
        self._doing = f"cannot {doing} of region '{step.region}'"
        self._outputs = tuple(torch_dtype(name) for name in step.options["outputs"])
        self._rows = PixelRows(step)
        self._weights = found[:weights]
        self._operands = EpilogueOperands.of(epilogue, found[weights:])
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._sizes = sizes

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; outputs are channels-last."""
        x, *tensors = inputs
        self._check(tuple(x.shape))
        shape = self._sizes.output_shape(tuple(x.shape))
        for tensor in tensors:
            if tuple(tensor.shape) != shape:
                raise self._error(f"an operand of {list(tensor.shape)}", f"{list(shape)}")
        outputs = [
            self._rows.allocate(allocate, number, shape, dtype) for number, dtype in enumerate(self._outputs)
        ]
        launch = self._sizes.launch_of(tuple(x.shape), shape)
        if launch.pixels > _MAX_PIXELS:
            raise self._error(f"{launch.pixels} pixels", f"at most {_MAX_PIXELS}", "a smaller batch")
        if launch.pixels > 0:
            self._enqueue(x, tensors, outputs, launch)
        return outputs

    def _enqueue(
        self, x: torch.Tensor, tensors: list[torch.Tensor], outputs: list[torch.Tensor], launch: Launch
    ) -> None:
        operands = self._operands.in_order(self._rows.tensors(tensors))
        arguments = [self._rows.x(x), *self._weights, *outputs, *operands, launch.pixels, *launch.sizes]
        self._launch((launch.programs, 1, 1), arguments)

    def _check(self, x: Shape) -> None:
        rank, channels = self._sizes.rank, self._sizes.channels
        is_right = len(x) > 2 if rank is None else len(x) == rank
        if not is_right or x[1] != channels:
            axes = "3 or more" if rank is None else f"{rank}"
            raise self._error(f"an input of {list(x)}", f"{axes} axes, {channels} channels on the second")

    def _error(self, got: str, expected: str, hint: str | None = None) -> DataError:
        return DataError(self._doing, got=got, expected=expected, hint=hint)
