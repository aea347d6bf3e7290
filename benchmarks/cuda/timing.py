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

ROUNDS = 10
HALF_TURN_MS = 200.0
MIN_RUNS = 5
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
    """Milliseconds of one run: quantiles over rounds of one turn each, in an order drawn for each round.

    The first half of a turn is not timed: at its limit of power a GPU's clock is what ran in the last
    tenths of a second leaves of it, so that short turns are faster behind a contender that takes little
    power, and slower behind one that takes much.
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    names, order = list(runs), np.random.default_rng(0)
    for _ in range(rounds):
        for index in order.permutation(len(names)):
            samples[names[index]].append(_turn_ms(runs[names[index]]))
    return {name: _quantiles(x) for name, x in samples.items()}


def _turn_ms(run: Callable[[], object]) -> float:
    _run_ms(run, 1)
    repeats = max(MIN_RUNS, round(HALF_TURN_MS / _run_ms(run, MIN_RUNS)))
    _run_ms(run, repeats)
    return _run_ms(run, repeats)


def _run_ms(run: Callable[[], object], repeats: int) -> float:
    """Milliseconds of a run, of so many that are enqueued one behind the other."""
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


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
