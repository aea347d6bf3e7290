# SPDX-License-Identifier: Apache-2.0
"""epilogue(pool(x)) with one of our kernels; channels-last in and out.

options: {"formula": JSON of the Pool, "outputs": element types}. Inputs: x, then the tensor operands.
Weights: the constant operands, float32 [C] each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError, InternalError
from quantrt.plan.program import Step
from quantrt.regions.formula_json import from_json
from quantrt.regions.region import Pool
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

Tensor = torch.Tensor

_ALIGNMENT = 16
"""Bytes; kernels are compiled for pointers that are multiples of it."""

_MAX_PIXELS = 2**31 - 1


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _PoolRunner(step, assets)


class _PoolRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        formula = from_json(step.options["formula"])
        if not isinstance(formula, Pool):
            raise InternalError(f"region '{step.region}' is no pool", got=type(formula).__name__)
        self._region = step.region
        self._formula = formula
        self._outputs = tuple(torch_dtype(name) for name in step.options["outputs"])
        self._constants = [assets.weights[key] for key in step.weights]
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        constants = dict(self._launch.spec.constants)
        self._channels = int(constants["N"])
        self._block = int(constants["BLOCK_M"]), int(constants["BLOCK_N"])

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; outputs are channels-last."""
        self._check(inputs[0])
        shape = self._formula.output_shape(tuple(inputs[0].shape))
        for tensor in inputs[1:]:
            if tuple(tensor.shape) != shape:
                raise self._error(f"an operand of {list(tensor.shape)}", f"{list(shape)}")
        outputs = [
            allocate(number, shape, dtype, channels_last=True) for number, dtype in enumerate(self._outputs)
        ]
        M = shape[0] * math.prod(shape[2:])
        if M > _MAX_PIXELS:
            raise self._error(f"{M} output pixels", f"at most {_MAX_PIXELS}", "a smaller batch")
        if M > 0:
            x, *tensors = (_channels_last(tensor) for tensor in inputs)
            columns = -(-self._channels // self._block[1])
            rows = M if self._formula.is_global else -(-M // self._block[0])
            arguments = [x, *outputs, *self._arguments(tensors), M, *self._sizes(x, shape)]
            self._launch((rows * columns, 1, 1), arguments)
        return outputs

    def _sizes(self, x: Tensor, shape: Sequence[int]) -> list[int]:
        """The kernel's last arguments, behind the number of rows."""
        if self._formula.is_global:
            return [math.prod(x.shape[2:])]
        return [*_as_pair(x.shape[2:]), *_as_pair(shape[2:])]

    def _arguments(self, tensors: Sequence[Tensor]) -> list[Any]:
        """The operands behind the accumulator, in their order."""
        left, constants = iter(tensors), iter(self._constants)
        found: list[Any] = []
        for operand in self._formula.epilogue.operands[1:]:
            if operand.kind == "scalar":
                found.append(operand.value)
            else:
                found.append(next(left) if operand.kind == "tensor" else next(constants))
        return found

    def _check(self, x: Tensor) -> None:
        rank = len(self._formula.kernel)
        is_right = x.dim() > 2 if self._formula.is_global else x.dim() == rank + 2
        if not is_right or x.shape[1] != self._channels:
            axes = "3 or more" if self._formula.is_global else f"{rank + 2}"
            expected = f"{axes} axes, {self._channels} channels on the second"
            raise self._error(f"an input of {list(x.shape)}", expected)

    def _error(self, got: str, expected: str, hint: str | None = None) -> DataError:
        message = f"cannot compute the pool of region '{self._region}'"
        return DataError(message, got=got, expected=expected, hint=hint)


def _as_pair(numbers: Sequence[int]) -> tuple[int, int]:
    """Sizes of the spatial axes as (vertical, horizontal); a 1-D axis is horizontal."""
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (1, numbers[0])


def _channels_last(x: Tensor) -> Tensor:
    """The tensor with channels next to each other, aligned; copied only where it is not so already."""
    result = x.movedim(1, -1).contiguous().movedim(-1, 1)
    return result.clone() if result.data_ptr() % _ALIGNMENT else result
