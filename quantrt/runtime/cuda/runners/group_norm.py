# SPDX-License-Identifier: Apache-2.0
"""epilogue((x + shift - mean) / sqrt(variance + epsilon)) with our kernels; channels-last in and out.

options: {"formula": JSON of the GroupNorm, "outputs": element types, "programs": how many the first of three
kernels should have}. Inputs: x, then the shift if there is one, then the tensor operands. Outputs: the
region's, then, with three kernels, their scratch memory: statistics of parts and of groups. Weights: the
constant operands, float32 [C] each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.kernels.group_norm.spec import IMAGE, part_rows
from quantrt.plan.program import Step
from quantrt.regions.region import GroupNorm
from quantrt.runtime.cuda.operands.epilogue import EpilogueOperands, aligned, channels_last
from quantrt.runtime.cuda.operands.step_formula import formula_of
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

Tensor = torch.Tensor

_MAX_PIXELS = 2**31 - 1


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _GroupNormRunner(step, assets)


class _GroupNormRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._region = step.region
        self._formula = formula_of(step, GroupNorm)
        self._outputs = tuple(torch_dtype(name) for name in step.options["outputs"])
        self._programs = int(step.options["programs"])
        constants = [assets.weights[key] for key in step.weights]
        self._operands = EpilogueOperands.of(self._formula.epilogue, constants)
        self._kernels: list[Launcher] = [assets.kernels[key] for key in step.kernels]
        self._fixed = dict(self._kernels[-1].spec.constants)
        self._is_per_image = [
            kind == IMAGE for kind in self._fixed["KINDS"] if kind not in ("scalar", "constant")
        ]

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; outputs are channels-last."""
        x = inputs[0]
        shape = tuple(x.shape)
        self._check(shape)
        outputs = [
            allocate(number, shape, dtype, channels_last=True) for number, dtype in enumerate(self._outputs)
        ]
        has_shift = self._formula.shift is not None
        tensors = list(inputs[1 + has_shift :])
        shift = self._shift(inputs[1], shape) if has_shift else []
        x = channels_last(x)
        if len(self._kernels) == 1:
            if x.numel():
                finish = [*self._arguments(x, tensors, outputs), *shift, self._formula.epsilon]
                self._kernels[0]((shape[0] * self._formula.groups, 1, 1), [*finish, math.prod(shape[2:])])
            return outputs
        return [*outputs, *self._in_parts(x, tensors, shift, outputs, allocate)]

    def _in_parts(
        self,
        x: Tensor,
        tensors: Sequence[Tensor],
        shift: list[Any],
        outputs: list[Tensor],
        allocate: Allocate,
    ) -> list[Tensor]:
        """Launch the three kernels; their scratch memory."""
        images, channels, pixels = x.shape[0], self._formula.channels, math.prod(x.shape[2:])
        block_m, columns = self._fixed["BLOCK_M"], -(-channels // self._fixed["BLOCK_N"])
        rows = part_rows(pixels, self._programs // max(images * columns, 1), block_m)
        parts = max(-(-pixels // rows), 1) if rows else 1
        scratch = allocate(len(outputs), (images, parts, 2, channels), torch.float32)
        statistics = allocate(len(outputs) + 1, (images, 2, channels), torch.float32)
        if x.numel():
            sums, merge, finish = self._kernels
            cut = [pixels, rows, parts]
            sums((images * parts * columns, 1, 1), [x, *shift, scratch, *cut])
            groups = images * self._formula.groups
            merge((groups, 1, 1), [scratch, statistics, self._formula.epsilon, *cut])
            programs = images * -(-pixels // (self._fixed["TILES"] * block_m)) * columns
            finish((programs, 1, 1), [*self._arguments(x, tensors, outputs), *shift, statistics, pixels])
        return [scratch, statistics]

    def _arguments(self, x: Tensor, tensors: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Any]:
        """x, the outputs, and the operands behind the accumulator, in their order."""
        shape = tuple(x.shape)
        read = [
            self._per_image(tensor, shape) if is_per_image else self._whole(tensor, shape)
            for tensor, is_per_image in zip(tensors, self._is_per_image, strict=True)
        ]
        return [x, *outputs, *self._operands.in_order(read)]

    def _shift(self, tensor: Tensor, shape: tuple[int, ...]) -> list[Any]:
        """A shift [N or 1, C, 1, ...] as [N, C], dense but for how far images are apart; and that."""
        rows = self._by_image(tensor, shape)
        rows = aligned(rows if rows.stride(1) == 1 else rows.contiguous())
        return [rows, rows.stride(0)]

    def _per_image(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        """[N or 1, C, 1, ...] as a dense [N, C]."""
        return aligned(self._by_image(tensor, shape).contiguous())

    def _by_image(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        """[N or 1, C, 1, ...] as [N, C]."""
        if tuple(tensor.shape[1:]) != (shape[1], *[1] * (len(shape) - 2)) or tensor.shape[0] not in (
            1,
            shape[0],
        ):
            raise self._error(
                f"an operand of {list(tensor.shape)}", f"{[*shape[:2], *[1] * (len(shape) - 2)]}"
            )
        return tensor.reshape(tensor.shape[:2]).expand(shape[:2])

    def _whole(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        try:
            return channels_last(tensor.expand(shape))
        except RuntimeError as error:
            raise self._error(f"an operand of {list(tensor.shape)}", f"{list(shape)}") from error

    def _check(self, shape: tuple[int, ...]) -> None:
        channels = self._formula.channels
        if len(shape) < 3 or shape[1] != channels:
            raise self._error(
                f"an input of {list(shape)}", f"3 or more axes, {channels} channels on the second"
            )
        pixels = shape[0] * math.prod(shape[2:])
        if pixels > _MAX_PIXELS:
            raise self._error(f"{pixels} pixels", f"at most {_MAX_PIXELS}", "a smaller batch")

    def _error(self, got: str, expected: str, hint: str | None = None) -> DataError:
        message = f"cannot compute the norm of region '{self._region}'"
        return DataError(message, got=got, expected=expected, hint=hint)
