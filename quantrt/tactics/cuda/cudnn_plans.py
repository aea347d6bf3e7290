# SPDX-License-Identifier: Apache-2.0
"""Plans of cuDNN's graphs, each made once, several at a time."""

from __future__ import annotations

import base64
import json
import math
import os
import queue
import select
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, cast

import torch

from quantrt.device import describe_device
from quantrt.errors import DeviceError
from quantrt.plan.cudnn_plan import CudnnGraph, CudnnPlan, graph_key, graph_to_json
from quantrt.runtime.cuda.cudnn_library import INSTALL, PACKAGE, is_installed

__all__ = ["PlanMaker", "plan_maker", "why_no_plans", "why_not_at"]

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
        cores = workers or describe_device(with_gpu=False)["available_cores"] or 1
        count = min(cores, MAX_WORKERS, len(missing))
        end_at_s = None if deadline_s is None else time.monotonic() + deadline_s
        idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        pool = [_Worker() for _ in range(count)]
        for worker in pool:
            idle.put(worker)

        def ask(graph: CudnnGraph) -> dict[str, Any]:
            if end_at_s is not None and time.monotonic() >= end_at_s:
                return {"error": OUT_OF_TIME}
            worker = idle.get()
            try:
                return worker.ask({**self._request, "graph": graph_to_json(graph)})
            finally:
                idle.put(worker)

        try:
            with ThreadPoolExecutor(count) as threads:
                for done, (key, found) in enumerate(
                    zip(missing, threads.map(ask, missing.values()), strict=True), 1
                ):
                    self._take(key, found)
                    on_progress(done, len(missing))
        finally:
            for worker in pool:
                worker.end()

    def reason(self, graphs: Sequence[CudnnGraph]) -> str:
        """Why one of the graphs has no plan; empty where all have."""
        keys = [graph_key(graph) for graph in graphs]
        return next((self.failures[key] for key in keys if key in self.failures), "")

    def is_lasting(self, reason: str) -> bool:
        """Whether a reason holds in every other build here."""
        return reason != OUT_OF_TIME

    def _take(self, key: str, found: Mapping[str, Any]) -> None:
        if "error" in found:
            self.failures[key] = str(found["error"])
            return
        self.failures.pop(key, None)
        data = base64.b64decode(found["data"])
        self.plans[key] = CudnnPlan(
            data, int(found["workspace_bytes"]), int(found["cudnn"]), str(found["gpu"])
        )


class _Worker:
    """One process, started when it is first asked, and again when it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request, or {"error": why there is none}."""
        process = self._process = self._process or _start()
        try:
            pipe = _pipe(process.stdin)
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # it died; reading its answer says so
        answers = _pipe(process.stdout)
        ready, _, _ = select.select([answers], [], [], PLAN_LIMIT_S)
        line = answers.readline() if ready else b""
        if line.endswith(b"\n"):
            found: dict[str, Any] = json.loads(line)
            return found
        self.end()
        if not ready:
            return {"error": f"cuDNN took more than {PLAN_LIMIT_S:g} s for its plan"}
        return {"error": f"the process that made its plan died with status {process.returncode}"}

    def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _start() -> subprocess.Popen[bytes]:
    """A worker: this Python and its path."""
    path = os.pathsep.join(folder or "." for folder in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "quantrt.runtime.cuda.cudnn_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
    except OSError as error:
        raise DeviceError("cannot start a process to make plans of cuDNN", got=str(error)) from error


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    """A pipe that was asked for when its process was started."""
    return cast("IO[bytes]", pipe)
