# SPDX-License-Identifier: Apache-2.0
"""epilogue(transposed convolution of x) where every pixel becomes a block, by our kernel; channels-last.

options: {"formula": JSON of the ConvTranspose, "outputs": element types}. Inputs: x, then the tensor
operands. Weights: the weight [*kernel, C_out, C_in], then the constant operands, float32 [C_out] each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError, InternalError
from quantrt.plan.program import Step
from quantrt.regions.formula_json import from_json
from quantrt.regions.region import ConvTranspose
from quantrt.runtime.cuda.runner import Allocate, Assets, Launcher, Runner
from quantrt.runtime.cuda.runners.group_norm import channels_last
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["open_runner"]

_MAX_PIXELS = 2**31 - 1


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _SpreadRunner(step, assets)


class _SpreadRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        formula = from_json(step.options["formula"])
        if not isinstance(formula, ConvTranspose):
            got = type(formula).__name__
            raise InternalError(f"region '{step.region}' is no transposed convolution", got=got)
        self._region = step.region
        self._formula = formula
        self._outputs = tuple(torch_dtype(name) for name in step.options["outputs"])
        self._weight, *self._constants = (assets.weights[key] for key in step.weights)
        self._launch: Launcher = assets.kernels[step.kernels[0]]
        self._fixed = dict(self._launch.spec.constants)

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; outputs are channels-last."""
        x, *tensors = inputs
        fixed = self._fixed
        if x.dim() != len(self._formula.kernel) + 2 or x.shape[1] != fixed["K"]:
            expected = f"{len(self._formula.kernel) + 2} axes, {fixed['K']} channels on the second"
            raise self._error(f"an input of {list(x.shape)}", expected)
        shape = (x.shape[0], fixed["C"], *self._formula.output_size(tuple(x.shape[2:])))
        for tensor in tensors:
            if tuple(tensor.shape) != shape:
                raise self._error(f"an operand of {list(tensor.shape)}", f"{list(shape)}")
        outputs = [
            allocate(number, shape, dtype, channels_last=True) for number, dtype in enumerate(self._outputs)
        ]
        M = x.shape[0] * math.prod(x.shape[2:])
        if M > _MAX_PIXELS:
            raise self._error(f"{M} pixels", f"at most {_MAX_PIXELS}", "a smaller batch")
        if M:
            columns = -(-fixed["S"] * fixed["C"] // fixed["BLOCK_N"])
            grid = (-(-M // fixed["BLOCK_M"]) * columns * fixed["R"], 1, 1)
            operands = self._operands([channels_last(tensor) for tensor in tensors])
            self._launch(grid, [channels_last(x), self._weight, *outputs, *operands, M, x.shape[-1]])
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
        message = f"cannot compute the transposed convolution of region '{self._region}'"
        return DataError(message, got=got, expected=expected, hint=hint)
