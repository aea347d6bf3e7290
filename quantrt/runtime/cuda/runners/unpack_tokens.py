# SPDX-License-Identifier: Apache-2.0
"""Tokens back in their places, with zeros between.

options: {"axis": along which the tokens of a sample lie, "zero": the code of 0}. Inputs: x, samples along
axis 0; in which row each token is, [B * S]; how many rows there are that count, [1].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.pack_tokens import as_rows

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _UnpackTokensRunner(step)


class _UnpackTokensRunner:
    def __init__(self, step: Step) -> None:
        self._axis = int(step.options["axis"])
        self._zero = int(step.options["zero"])

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; tokens lie outside all axes but that of the samples."""
        x, places, count = inputs
        shape = x.transpose(1, self._axis).shape
        padded = allocate(0, tuple(shape), x.dtype)
        rows = as_rows(padded)
        torch.index_select(as_rows(x, self._axis), 0, places, out=rows)
        rows.masked_fill_((places >= count).view(-1, *[1] * (rows.dim() - 1)), self._zero)
        return [padded.transpose(1, self._axis)]
