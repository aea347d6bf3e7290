# SPDX-License-Identifier: Apache-2.0
"""Plans of cuDNN's graphs, each made once, several at a time."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

import torch

from quantrt.plan.cudnn_plan import CudnnGraph, CudnnPlan, graph_key, graph_to_json
from quantrt.runtime.cuda.device.cudnn_library import INSTALL, PACKAGE, is_installed
from quantrt.threads import usable_cores
from quantrt.worker_process import CRASHED, ERROR, WorkerPool

__all__ = ["PlanMaker", "plan_maker", "why_no_plans", "why_not_at"]

WORKER = "quantrt.runtime.cuda.device.cudnn_worker"

PLAN_LIMIT_S = 120.0
"""After this long a plan counts as one that cuDNN cannot make; ordinary ones take 1 to 7 s."""

MAX_WORKERS = 8
"""Each holds a context on the GPU, some 500 MB."""

LEAST_LEVEL = 4
LEAST_LEVEL_ALONE = 3
"""Builder optimization levels from which plans are made: beside our kernels, and where those are excluded or
the convolution is large."""

LARGE_PRODUCTS = 10**10
"""Multiplications of a large convolution: see docs/results/cuda-cudnn-h200.md. Of four on an H200 cuDNN was
faster in two, by 1.1 and 1.26 times; of ten smaller ones in one, by 1.1."""

OUT_OF_TIME = "no plan was made: the time for compiling was over"


def why_no_plans(device: torch.device | None, targets: Sequence[int] = ()) -> str:
    """Why cuDNN cannot be asked for plans; empty where it can be, and on a CPU, which needs none.

    Args:
        device: None where the GPU is not here.
        targets: compute capabilities that the engine is for beside the GPU's own.
    """
    if targets:
        others = ", ".join(f"sm_{target}" for target in targets)
        return f"cuDNN makes plans for the GPU that is here alone, the engine is for {others} too"
    if device is None:
        return "cuDNN makes its plans on the GPU that they are for, which is not here"
    if device.type == "cuda" and not is_installed():
        return f"{PACKAGE} is not installed: {INSTALL}"
    return ""


def why_not_at(level: int, excluded: Collection[str], products: int) -> str:
    """Why no plans are made at a builder optimization level; empty where they are.

    Args:
        excluded: sources of tactics that are not to be used.
        products: multiplications of the convolution.
    """
    is_worth = "triton" in excluded or products >= LARGE_PRODUCTS
    least = LEAST_LEVEL_ALONE if is_worth else LEAST_LEVEL
    if level >= least:
        return ""
    return f"a plan takes seconds: for this convolution none is made below builder optimization level {least}"


def plan_maker(
    device: torch.device | None,
    *,
    known: Mapping[str, CudnnPlan] | None = None,
    workspace_limit_bytes: int | None = None,
) -> PlanMaker | None:
    """What makes plans for a device; None where none are made.

    Args:
        known: plans that were made earlier, by key; those for another GPU, by another cuDNN or of too large a
            workspace are left out.
    """
    if device is None or device.type != "cuda":
        return None
    index = torch.empty(0, device=device).device.index  # of "cuda" the current one
    name = torch.cuda.get_device_name(index)
    here = (name, torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    limit_bytes = math.inf if workspace_limit_bytes is None else workspace_limit_bytes
    usable = {
        key: plan
        for key, plan in (known or {}).items()
        if (plan.gpu, plan.cudnn) == here and plan.workspace_bytes <= limit_bytes
    }
    return PlanMaker(name, index, known=usable, workspace_limit_bytes=workspace_limit_bytes)


class PlanMaker:
    """Makes plans for one GPU and keeps them.

    Args:
        gpu: its name.
        properties: its number, or what cuDNN serialized of one that need not be here.
        known: plans by key that were made earlier for this GPU, with the cuDNN that is here.
        workspace_limit_bytes: of one plan; None is no bound.

    Attributes:
        plans: by key.
        failures: why there is none, by key.
    """

    def __init__(
        self,
        gpu: str,
        properties: str | int,
        *,
        known: Mapping[str, CudnnPlan] | None = None,
        workspace_limit_bytes: int | None = None,
    ) -> None:
        self.plans: dict[str, CudnnPlan] = dict(known or {})
        self.failures: dict[str, str] = {}
        self._request = {
            "gpu": gpu,
            "properties": properties,
            "workspace_limit_bytes": workspace_limit_bytes,
        }

    def make(
        self,
        graphs: Sequence[CudnnGraph],
        *,
        workers: int | None = None,
        deadline_s: float | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """Make the plans that are neither known nor known to fail.

        Args:
            workers: processes; None is one per core, and no more than MAX_WORKERS.
            deadline_s: seconds from now, after which no more plans are begun.
            on_progress: called with (plans done, plans in all).

        Raises:
            DeviceError: no process can be started.
        """
        wanted = {graph_key(graph): graph for graph in graphs}
        failed = {key for key, reason in self.failures.items() if reason != OUT_OF_TIME}
        missing = {key: graph for key, graph in wanted.items() if key not in self.plans and key not in failed}
        if not missing:
            return
        cores = workers or usable_cores()
        requests = [{**self._request, "graph": graph_to_json(graph)} for graph in missing.values()]
        with closing(WorkerPool(WORKER, min(cores, MAX_WORKERS))) as pool:
            answers = pool.ask_all(
                requests, limit_s=PLAN_LIMIT_S, deadline_s=deadline_s, on_progress=on_progress
            )
        for key, answer in zip(missing, answers, strict=True):
            self._take(key, answer)

    def reason(self, graphs: Sequence[CudnnGraph]) -> str:
        """Why one of the graphs has no plan; empty where all have."""
        keys = [graph_key(graph) for graph in graphs]
        return next((self.failures[key] for key in keys if key in self.failures), "")

    def is_lasting(self, reason: str) -> bool:
        """Whether a reason holds in every other build here."""
        return reason != OUT_OF_TIME

    def _take(self, key: str, answer: Mapping[str, Any] | None) -> None:
        if answer is None:
            self.failures[key] = OUT_OF_TIME
        elif ERROR in answer or CRASHED in answer:
            self.failures[key] = str(answer.get(ERROR) or f"cuDNN {answer[CRASHED]}")
        else:
            self.failures.pop(key, None)
            self.plans[key] = CudnnPlan(
                base64.b64decode(answer["data"]),
                int(answer["workspace_bytes"]),
                int(answer["cudnn"]),
                str(answer["gpu"]),
            )
