# SPDX-License-Identifier: Apache-2.0
"""How long every layer of an engine takes, run by run.

Layers are timed in an executor of their own with the library's profiling switched on, so that the engine
itself is never slowed: OpenVINO's performance counters, ONNX Runtime's profile, and on a GPU events around
the steps of a run without a CUDA graph.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from quantrt.errors import InternalError
from quantrt.plan.plan import Plan
from quantrt.runtime.check_inputs import InputCheck
from quantrt.runtime.engine import Engine
from quantrt.runtime.executor import Executor
from quantrt.runtime.unique_names import unique_names

if TYPE_CHECKING:
    import onnx

    from quantrt.runtime.onnxruntime.watch import NodeEvent, WatchedRun
    from quantrt.runtime.openvino.watch import WatchedOpenVino

__all__ = [
    "LayerTimes",
    "open_watched",
    "time_layers",
    "time_plan",
    "time_watched",
    "time_with_graph",
    "watch_candidate",
]


@dataclass(frozen=True, kw_only=True)
class LayerTimes:
    """Milliseconds of every layer in every run.

    Watching layers slows a run: `run_ms` is of the watched runs, and longer than the engine's latency.

    Attributes:
        names: layers as `quantrt.report.engine_layers.of_engine` names them, in the order in which they ran.
        times_ms: for each of `names`, its time in each run; 0 where the library ran nothing for it. OpenVINO
            tells the mean run alone, which stands for each.
        run_ms: of each whole run, with the watching in it; on a GPU the sum of its steps.
        method: how the times were taken, one phrase.
    """

    names: tuple[str, ...]
    times_ms: tuple[tuple[float, ...], ...]
    run_ms: tuple[float, ...]
    method: str

    @property
    def median_ms(self) -> Mapping[str, float]:
        """The median over the runs, by the layer's name."""
        rows = zip(self.names, self.times_ms, strict=True)
        return {name: statistics.median(row) for name, row in rows}


def time_layers(
    engine: Engine, inputs: Mapping[str, np.ndarray], *, runs: int, warmup_runs: int
) -> LayerTimes:
    """Run an engine layer by layer.

    Args:
        inputs: of one run.
        runs, warmup_runs: how many runs are timed, 1 at least, and how many before them are not.

    Raises:
        DataError: an input's name, element type or shape is wrong; names it.
    """
    if engine.plan.model.library != "cuda":
        return time_plan(engine.plan, inputs, runs=runs, warmup_runs=warmup_runs)
    _check_runs(runs, warmup_runs)
    return _time_cuda(engine, InputCheck(engine.plan.inputs).check(inputs), runs, warmup_runs)


def time_plan(
    plan: Plan,
    inputs: Mapping[str, np.ndarray],
    *,
    runs: int,
    warmup_runs: int,
    beside: Executor | None = None,
) -> LayerTimes:
    """As `time_layers`, for what runs on a CPU and need not be open.

    Args:
        beside: an open executor of the plan's model, where there is one.

    Raises:
        DataError: as for `time_layers`.
        DeviceError, ModelError: the library is missing or cannot load the model.
        InternalError: the plan is for a GPU.
    """
    if plan.model.library == "openvino":
        with open_watched(plan, beside) as executor:
            return time_watched(executor, plan, inputs, runs=runs, warmup_runs=warmup_runs)
    if plan.model.library == "onnxruntime":
        _check_runs(runs, warmup_runs)
        return _time_onnxruntime(plan, InputCheck(plan.inputs).check(inputs), runs, warmup_runs)
    raise InternalError("the layers of a plan for a GPU are timed in its engine", got=plan.model.library)


def _check_runs(runs: int, warmup_runs: int) -> None:
    if runs < 1 or warmup_runs < 0:
        raise InternalError("cannot time layers", got=f"{runs} runs after {warmup_runs}", expected="1 run")


@contextmanager
def open_watched(plan: Plan, beside: Executor | None = None) -> Iterator[WatchedOpenVino]:
    """What runs a plan for OpenVINO and tells of its layers; closed behind.

    Args:
        beside: an open executor of the same model, whose compiled models are watched then.
    """
    from quantrt.runtime.openvino.executor import OpenVinoExecutor  # openvino is optional
    from quantrt.runtime.openvino.watch import WatchedOpenVino

    executor = WatchedOpenVino(
        plan.model,
        plan.options,
        output_names=[spec.name for spec in plan.outputs],
        beside=beside if isinstance(beside, OpenVinoExecutor) else None,
    )
    try:
        yield executor
    finally:
        executor.close()


def time_watched(
    executor: WatchedOpenVino,
    plan: Plan,
    inputs: Mapping[str, np.ndarray],
    *,
    runs: int,
    warmup_runs: int,
) -> LayerTimes:
    """As `time_plan`, in what `open_watched` gave: once."""
    _check_runs(runs, warmup_runs)
    given = InputCheck(plan.inputs).check(inputs)
    names, means_ms, run_ms = executor.watch(given, runs=runs, warmup_runs=warmup_runs)
    return LayerTimes(
        names=names,
        times_ms=tuple((mean_ms,) * runs for mean_ms in means_ms),
        run_ms=tuple(run_ms),
        method="OpenVINO's performance counters, which are means over all runs",
    )


def time_with_graph(
    plan: Plan, inputs: Mapping[str, np.ndarray], *, runs: int, warmup_runs: int
) -> tuple[onnx.ModelProto, list[NodeEvent], LayerTimes]:
    """As `time_plan` of what is for ONNX Runtime, with the graph that it made, and nodes of the first run."""
    from quantrt.runtime.onnxruntime.watch import watch_with_graph  # onnxruntime is optional

    _check_runs(runs, warmup_runs)
    given = InputCheck(plan.inputs).check(inputs)
    graph, found = watch_with_graph(plan.model, plan.options, given, runs=runs, warmup_runs=warmup_runs)
    return graph, found[0][1], _onnxruntime_times(found)


def _time_onnxruntime(
    plan: Plan, inputs: Mapping[str, np.ndarray], runs: int, warmup_runs: int
) -> LayerTimes:
    from quantrt.runtime.onnxruntime.watch import watch_onnxruntime  # onnxruntime is optional

    return _onnxruntime_times(
        watch_onnxruntime(plan.model, plan.options, inputs, runs=runs, warmup_runs=warmup_runs)
    )


def _onnxruntime_times(found: list[WatchedRun]) -> LayerTimes:
    names = unique_names([event.name for event in found[0][1]])
    rows = [_onnxruntime_row(names, [(event.name, event.time_ms) for event in events]) for _, events in found]
    return LayerTimes(
        names=tuple(names),
        times_ms=_by_layer(rows),
        run_ms=tuple(run_ms for run_ms, _ in found),
        method="ONNX Runtime's profile",
    )


def _onnxruntime_row(names: list[str], events: list[tuple[str, float]]) -> list[float]:
    times = dict(zip(unique_names([name for name, _ in events]), (time for _, time in events), strict=True))
    return [times.get(name, 0.0) for name in names]


def _time_cuda(engine: Engine, inputs: Mapping[str, np.ndarray], runs: int, warmup_runs: int) -> LayerTimes:
    return watch_candidate(engine.executor, inputs, runs=runs, warmup_runs=warmup_runs)


def watch_candidate(
    executor: Executor, inputs: Mapping[str, np.ndarray], *, runs: int, warmup_runs: int
) -> LayerTimes:
    """As `time_layers`, of an open executor for a GPU.

    Raises:
        InternalError: it is for something else.
    """
    from quantrt.runtime.cuda.executor import CudaExecutor  # torch is optional

    if not isinstance(executor, CudaExecutor):
        raise InternalError("an engine for a GPU has another executor", got=type(executor).__name__)
    found = executor.watch(inputs, runs=runs, warmup_runs=warmup_runs)
    names = tuple(dict.fromkeys(region for region, _ in found[0]))
    rows = []
    for steps in found:
        sums = dict.fromkeys(names, 0.0)
        for region, latency_ms in steps:
            sums[region] += latency_ms
        rows.append(list(sums.values()))
    return LayerTimes(
        names=names,
        times_ms=_by_layer(rows),
        run_ms=tuple(sum(row) for row in rows),
        method=executor.watch_method,
    )


def _by_layer(rows: list[list[float]]) -> tuple[tuple[float, ...], ...]:
    """Times by run and layer -> by layer and run."""
    return tuple(tuple(column) for column in np.array(rows, np.float64).T.tolist())
