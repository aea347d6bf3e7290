# SPDX-License-Identifier: Apache-2.0
"""epilogue(images with every pixel repeated) by our kernel; channels-last in and out.

options: {"formula": JSON of the Resize, "outputs": element types}. Inputs: x, then the tensor operands.
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
from quantrt.regions.region import Resize
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.runners.group_norm import channels_last
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

_MAX_PIXELS = 2**31 - 1


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _RepeatPixelsRunner(step, assets)


class _RepeatPixelsRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        formula = from_json(step.options["formula"])
        if not isinstance(formula, Resize):
            raise InternalError(f"region '{step.region}' is no Resize", got=type(formula).__name__)
        self._region = step.region
        self._formula = formula
        self._outputs = tuple(torch_dtype(name) for name in step.options["outputs"])
        self._constants = [assets.weights[key] for key in step.weights]
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._fixed = dict(self._launch.spec.constants)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; outputs are channels-last."""
        x, *tensors = inputs
        channels = self._fixed["C"]
        if x.dim() != len(self._formula.scales) + 2 or x.shape[1] != channels:
            expected = f"{len(self._formula.scales) + 2} axes, {channels} channels on the second"
            raise self._error(f"an input of {list(x.shape)}", expected)
        shape = (*x.shape[:2], *self._formula.output_size(tuple(x.shape[2:])))
        for tensor in tensors:
            if tuple(tensor.shape) != shape:
                raise self._error(f"an operand of {list(tensor.shape)}", f"{list(shape)}")
        outputs = [
            allocate(number, shape, dtype, channels_last=True) for number, dtype in enumerate(self._outputs)
        ]
        M = shape[0] * math.prod(shape[2:])
        if M > _MAX_PIXELS:
            raise self._error(f"{M} output pixels", f"at most {_MAX_PIXELS}", "a smaller batch")
        if M:
            tiles = -(-M // self._fixed["BLOCK_M"]) * -(-channels // self._fixed["BLOCK_N"])
            operands = self._operands([channels_last(tensor) for tensor in tensors])
            sizes = M, *(1, *shape[2:])[-2:]
            self._launch((tiles, 1, 1), [channels_last(x), *outputs, *operands, *sizes])
        return outputs

    def _operands(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Those behind the accumulator, in their order."""
        left, constants = iter(tensors), iter(self._constants)
        found: list[Any] = []
        for operand in self._formula.epilogue.operands[1:]:
            if operand.kind == "scalar":
                found.append(operand.value)
            else:
                found.append(next(left) if operand.kind == "tensor" else next(constants))
        return found

    def _error(self, got: str, expected: str, hint: str | None = None) -> DataError:
        message = f"cannot resize the images of region '{self._region}'"
        return DataError(message, got=got, expected=expected, hint=hint)
