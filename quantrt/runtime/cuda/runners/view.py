# SPDX-License-Identifier: Apache-2.0
"""One node that moves elements without changing them: a view of its input where torch can, else a copy.

options: those of node_graph.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.node_graph import NodeGraph
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step.

    Raises:
        ModelError: the node cannot be run.
    """
    return _ViewRunner(step, assets)


class _ViewRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._graph = NodeGraph(step, assets, assets.device)
        self._device = assets.device

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the outputs are views of the first input where torch can make them."""
        found = self._graph.run(inputs)
        return [x.to(self._device) if isinstance(x, torch.Tensor) else x for x in found]
