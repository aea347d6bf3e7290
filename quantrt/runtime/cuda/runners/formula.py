# SPDX-License-Identifier: Apache-2.0
"""The reference tactic of every formula: right on any device, at no particular speed.

options: {"formula": JSON of the formula, "outputs": [element types]}; weights: the product's weight where
there is one, then the expression's constants in operand order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.plan.program import Step
from quantrt.regions.formula_expression import constant_names
from quantrt.regions.formula_json import from_json
from quantrt.regions.region import (
    Conv,
    ConvTranspose,
    Gemm,
    PooledConv,
    ResizedConv,
)
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _FormulaRunner(step, assets)


class _FormulaRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._region = step.region
        self._formula = from_json(step.options["formula"])
        self._outputs = tuple(step.options["outputs"])
        tensors = [assets.weights[key] for key in step.weights]
        has_weight = isinstance(self._formula, Gemm | Conv | ConvTranspose | PooledConv | ResizedConv)
        self._weight = tensors[0] if has_weight else None
        names = constant_names(self._formula)
        self._constants = dict(zip(names, tensors[has_weight:], strict=True))
        self._device = assets.device

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the outputs are the runner's own tensors."""
        given = [tensor.to(self._device) for tensor in inputs]
        try:
            return compute(self._formula, given, self._outputs, self._weight, self._constants)
        except torch.OutOfMemoryError:
            raise  # not for what it is given
        except RuntimeError as error:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
            raise DataError(f"cannot compute region '{self._region}' of {shapes}", got=str(error)) from error
