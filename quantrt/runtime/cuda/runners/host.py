# SPDX-License-Identifier: Apache-2.0
"""Nodes that compute shapes, on the CPU: of tensors on the device they see the shape and nothing else.

options: those of node_graph.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.operands.node_graph import NodeGraph
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step.

    Raises:
        ModelError: the nodes cannot be run.
    """
    return _HostRunner(step, assets)


class _HostRunner:
    def __init__(self, step: Step, assets: Assets) -> None:
        self._graph = NodeGraph(step, assets, torch.device("cpu"))
        self._region = step.region
        self._names = step.outputs

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run; the outputs are in host memory."""
        found = self._graph.run([_shape_alone(value) for value in inputs])
        for name, value in zip(self._names, found, strict=True):
            if isinstance(value, torch.Tensor) and value.device.type != "cpu":
                raise DataError(
                    f"region '{self._region}' cannot compute '{name}' on the host",
                    got="a result of values on the device",
                    expected="one of shapes and host values",
                )
        return found


def _shape_alone(value: Any) -> Any:
    """A tensor without values for one that lies on a device."""
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    return value
