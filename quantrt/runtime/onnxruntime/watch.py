# SPDX-License-Identifier: Apache-2.0
"""An ONNX Runtime session of which every node is timed, and the graph that it runs after optimization."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from quantrt.errors import InternalError
from quantrt.ir.scratch import scratch_folder
from quantrt.plan.plan import ExecOptions, LibraryModel
from quantrt.runtime.onnxruntime.executor import OnnxRuntimeExecutor

__all__ = [
    "NodeEvent",
    "WatchedRun",
    "optimized_graph",
    "stable_name",
    "watch_onnxruntime",
    "watch_with_graph",
]

_KERNEL = "_kernel_time"
_EXTERNAL_WEIGHTS = "session.optimized_model_external_initializers_file_name"


@dataclass(frozen=True)
class NodeEvent:
    """One node in one run.

    Attributes:
        name: of the node of the optimized graph; its operator where it has none of its own.
        op_type: its operator.
        time_ms: of its kernel.
        outputs: (element type as ONNX writes it, shape) of each output.
    """

    name: str
    op_type: str
    time_ms: float
    outputs: tuple[tuple[str, tuple[int, ...]], ...]


WatchedRun = tuple[float, list[NodeEvent]]
"""Milliseconds, and the nodes of the main graph in the order in which they ran."""


def watch_onnxruntime(
    model: LibraryModel,
    options: ExecOptions,
    inputs: Mapping[str, np.ndarray],
    *,
    runs: int,
    warmup_runs: int,
) -> list[WatchedRun]:
    """What was seen of every run.

    Raises:
        DataError: the model cannot run these inputs.
    """
    with scratch_folder() as folder:
        settings = _profiling(folder)
        return _watch(model, options, inputs, settings, warmup_runs + runs)[warmup_runs:]


def watch_with_graph(
    model: LibraryModel,
    options: ExecOptions,
    inputs: Mapping[str, np.ndarray],
    *,
    runs: int,
    warmup_runs: int,
) -> tuple[onnx.ModelProto, list[WatchedRun]]:
    """As `optimized_graph` and `watch_onnxruntime`, of one session.

    Raises:
        DataError: the model cannot run these inputs.
    """
    with scratch_folder() as folder:
        settings = _profiling(folder)
        path = _store_graph(settings, folder)
        found = _watch(model, options, inputs, settings, warmup_runs + runs)
        return onnx.load(path, load_external_data=False), found[warmup_runs:]


def optimized_graph(model: LibraryModel, options: ExecOptions) -> onnx.ModelProto:
    """The graph that ONNX Runtime makes of the model on this machine; large weights are not in it."""
    with scratch_folder() as folder:
        settings = onnxruntime.SessionOptions()
        path = _store_graph(settings, folder)
        with _opened(model, options, settings):
            return onnx.load(path, load_external_data=False)


def _profiling(folder: Path) -> onnxruntime.SessionOptions:
    settings = onnxruntime.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(folder / "profile")
    return settings


def _store_graph(settings: onnxruntime.SessionOptions, folder: Path) -> Path:
    """Where a session writes the graph that it runs."""
    path = folder / "optimized.onnx"
    settings.optimized_model_filepath = str(path)
    settings.add_session_config_entry(_EXTERNAL_WEIGHTS, "optimized.bin")
    return path


def _watch(
    model: LibraryModel,
    options: ExecOptions,
    inputs: Mapping[str, np.ndarray],
    settings: onnxruntime.SessionOptions,
    runs: int,
) -> list[WatchedRun]:
    shapes = tuple(tuple(array.shape) for array in inputs.values())
    threads = 1 if options.one_thread_shapes == shapes else options.threads
    with _opened(model, replace(options, threads=threads), settings) as executor:
        for _ in range(runs):
            executor.run(inputs)
        path = Path(executor.end_profiling())
    return _runs_of(json.loads(path.read_bytes()))


class _Watched(OnnxRuntimeExecutor):
    """An executor whose session writes a profile."""

    def end_profiling(self) -> str:
        """The path of the profile, which no later run adds to."""
        if self._session is None:
            raise InternalError("the ONNX Runtime session was used after it was closed")
        return str(self._session.end_profiling())


@contextmanager
def _opened(
    model: LibraryModel, options: ExecOptions, settings: onnxruntime.SessionOptions
) -> Iterator[_Watched]:
    executor = _Watched(model, replace(options, one_thread_shapes=None), session_options=settings)
    try:
        yield executor
    finally:
        executor.close()


def _runs_of(events: list[dict[str, Any]]) -> list[WatchedRun]:
    """The profile's rows by run. A node inside the body of another counts for that other."""
    rows = sorted((row for row in events if row.get("ph") == "X"), key=lambda row: (row["ts"], -row["dur"]))
    found: list[WatchedRun] = []
    end_us = 0
    for row in rows:
        if row["name"] == "model_run":
            found.append((row["dur"] / 1e3, []))
            end_us = 0
        elif row.get("cat") == "Node" and row["name"].endswith(_KERNEL) and found and row["ts"] >= end_us:
            found[-1][1].append(_event(row))
            end_us = row["ts"] + row["dur"]
    return found


def _event(row: Mapping[str, Any]) -> NodeEvent:
    args = row["args"]
    shapes = (next(iter(output.items())) for output in args.get("output_type_shape", ()) if output)
    op_type = args.get("op_name", "")
    return NodeEvent(
        stable_name(row["name"].removesuffix(_KERNEL), op_type),
        op_type,
        row["dur"] / 1e3,
        tuple((kind, tuple(shape)) for kind, shape in shapes),
    )


def stable_name(name: str, op_type: str) -> str:
    """The name, or the operator for one that ONNX Runtime made of it and a number.

    Which of several such nodes gets which number is not the same in two sessions; the order in which they
    run is.
    """
    number = name.removeprefix(f"{op_type}_token_")
    return op_type if number != name and number.isdigit() else name
