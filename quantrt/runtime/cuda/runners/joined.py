# SPDX-License-Identifier: Apache-2.0
"""Slices of one image's channels, written in place by what made them, as that image: nothing runs.

options: {"channels": of the image}. Inputs: all slices in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quantrt.errors import InternalError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.steps.places import slice_beside

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _JoinedRunner(step)


class _JoinedRunner:
    def __init__(self, step: Step) -> None:
        self._region = step.region
        self._channels = int(step.options["channels"])

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the output is a view of the memory that the inputs are slices of.

        Raises:
            InternalError: they are not.
        """
        whole = slice_beside(inputs[0], 0, 0, self._channels)
        first = 0
        for part in inputs:
            there = whole[:, first : first + part.shape[1]]
            if (part.data_ptr(), part.shape) != (there.data_ptr(), there.shape):
                raise InternalError(f"the inputs of region '{self._region}' are not slices of one image")
            first += part.shape[1]
        if first != self._channels:
            raise InternalError(
                f"the inputs of region '{self._region}' are not a whole image",
                got=f"{first} channels",
                expected=str(self._channels),
            )
        return [whole]
