# SPDX-License-Identifier: Apache-2.0
"""epilogue(conv(x, w)) as one kernel of cuDNN's, at the shapes it was made for; our own kernel runs others.

options: those of runners/conv2d.py, and {"graph": see quantrt/plan/cudnn_plan.py, "sources": where each of
its operands comes from: ["constant", number], ["tensor", number] (of the inputs behind x) or ["scalar",
value]}. Inputs, weights and kernels: those of runners/conv2d.py. The last output is cuDNN's workspace. On a
CPU the graph is evaluated as it is defined.
"""

from __future__ import annotations

import torch

from quantrt.plan.cudnn_plan import graph_from_json
from quantrt.plan.program import Step
from quantrt.runtime.cuda.device.cudnn_library import WEIGHT_UID, X_UID, operand_uids, output_uids
from quantrt.runtime.cuda.operands.epilogue import channels_last
from quantrt.runtime.cuda.reference.cudnn_meaning import compute_graph
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner
from quantrt.runtime.cuda.runners.conv2d import Conv2dRunner

__all__ = ["open_runner"]

Tensor = torch.Tensor

_ALIGNED = 4
"""Elements of float32 from one scalar to the next: cuDNN counts on tensors at multiples of 16 bytes."""


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _CudnnGraphRunner(step, assets)


class _CudnnGraphRunner(Conv2dRunner):
    def __init__(self, step: Step, assets: Assets) -> None:
        super().__init__(step, assets)
        self._graph = graph_from_json(step.options["graph"])
        self._sources = [(str(kind), value) for kind, value in step.options["sources"]]
        values = [float(value) for kind, value in self._sources if kind == "scalar"]
        rows = torch.tensor(values, dtype=torch.float32).reshape(-1, 1).expand(-1, _ALIGNED)
        self._numbers = rows.contiguous().to(assets.device)
        self._plan = next((assets.plans[key] for key in step.plans if key in assets.plans), None)
        if self._plan is None and assets.device.type == "cuda":
            raise ValueError("no plan of cuDNN's")

    def _enqueue(
        self, x: Tensor, tensors: list[Tensor], outputs: list[Tensor], allocate: Allocate
    ) -> list[Tensor]:
        plan = self._plan
        size_bytes = 1 if plan is None else max(1, plan.workspace_bytes)
        workspace = allocate(len(outputs), (size_bytes,), torch.uint8)
        operands = self._graph_operands(tensors)
        if plan is None:
            found = compute_graph(self._graph, x, self._weight, operands)
            for output, value in zip(outputs, found, strict=True):
                output.copy_(value)
        elif tuple(x.shape) != self._graph.x:
            super()._enqueue(x, tensors, outputs, allocate)
        else:
            given = {X_UID: channels_last(x), WEIGHT_UID: self._weight}
            given.update(zip(operand_uids(self._graph), operands, strict=True))
            given.update(zip(output_uids(self._graph), outputs, strict=True))
            plan.run(given, workspace, self._region)
        return [workspace]

    def _graph_operands(self, tensors: list[Tensor]) -> list[Tensor]:
        """In the order of its operations."""
        scalars = iter(self._numbers)
        found = []
        for kind, value in self._sources:
            match kind:
                case "constant":
                    found.append(self._operands.constants[int(value)])
                case "tensor":
                    found.append(tensors[int(value)])
                case "scalar":
                    found.append(next(scalars)[:1])
                case _:
                    raise ValueError(f"an operand from '{kind}'")
        return found
