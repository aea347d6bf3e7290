# SPDX-License-Identifier: Apache-2.0
"""Where a GPU's figures were measured, and how contenders are timed in turns."""

__all__ = ["ROUNDS", "commit", "enqueued", "environment", "graph_us", "time_in_turns"]

import subprocess
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from quantrt.errors import DeviceError
from quantrt.runtime.cuda.executor import CudaExecutor
from quantrt.runtime.executor import Executor

ROUNDS = 30
REPLAYS = 20
WARM_REPLAYS, GRAPH_REPLAYS = 2, 7

PACKAGES = ("torch", "triton", "onnxruntime", "onnx", "onnx-ir", "numpy")


def environment() -> dict[str, Any]:
    """The GPU and the versions of everything that is compared."""
    packages = {name: version(name) for name in PACKAGES}
    return {"gpu": torch.cuda.get_device_name(), "packages": packages}


def commit() -> str | None:
    """Of the working tree, for rows of one table may be measured at several."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def enqueued(executor: Executor, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """One run of an engine of a GPU's, for timing by events: it is enqueued, and nothing waits for it.

    Raises:
        DeviceError: the engine is a library's of the CPU.
    """
    if not isinstance(executor, CudaExecutor):
        raise DeviceError(
            "cannot enqueue a run of the engine", got=type(executor).__name__, expected=CudaExecutor.__name__
        )
    return executor.prepare(inputs, waits=False)


def time_in_turns(runs: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Milliseconds of one run: quantiles over rounds of one turn each, REPLAYS runs between two events.

    The order of a round is drawn: a GPU at its limit of power is slower behind some than behind others.
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    names, order = list(runs), np.random.default_rng(0)
    for number in range(rounds + 1):
        for name in (names[index] for index in order.permutation(len(names))):
            run = runs[name]
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            run()
            torch.cuda.synchronize()
            start.record()
            for _ in range(REPLAYS):
                run()
            end.record()
            torch.cuda.synchronize()
            if number:
                samples[name].append(start.elapsed_time(end) / REPLAYS)
    return {name: _quantiles(x) for name, x in samples.items()}


def graph_us(run: Callable[[int], object], calls: int) -> float:
    """Microseconds of one of the numbered calls that a CUDA graph holds, the median of replays."""
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for call in range(2):
            run(call)
        with torch.cuda.graph(graph, stream=stream):
            for call in range(calls):
                run(call)
    samples: list[float] = []
    for _ in range(WARM_REPLAYS + GRAPH_REPLAYS):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        samples.append(1e3 * start.elapsed_time(end) / calls)
    return float(np.median(samples[WARM_REPLAYS:]))


def _quantiles(samples: list[float]) -> dict[str, float]:
    return {f"p{round(100 * q)}": float(np.quantile(samples, q)) for q in (0.2, 0.5, 0.8)}
