# SPDX-License-Identifier: Apache-2.0
"""The roofline of this machine's CPU, measured with the library of the engine and its threads.

Products of 1024 x 1024 by 1024 x 1024 in the engine's precisions; maxima over rows of three sizes of tensors,
which read every byte and write hardly any; and a chain of products too small to count, for what a layer costs
that does nothing. The fastest of a few runs counts: a peak is what was reached at best.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx import numpy_helper

from quantrt.errors import DeviceError, ModelError
from quantrt.plan.lower import lower_to_onnxruntime, lower_to_openvino
from quantrt.plan.plan import ExecOptions, LibraryModel, Plan
from quantrt.report.explain.peaks import Peaks
from quantrt.runtime.executor import open_executor

__all__ = ["find_cpu_peaks", "measure_cpu_peaks"]

SIZE = 1024
SETS_BYTES = (1 << 20, 1 << 24, 1 << 28)
"""One that fits in a core's second-level cache, one that mostly fits in the last, one that does not."""

ROW = 4096
LINKS = 32
TINY = 16
RUNS = 9
REPEATS = 3
"""Of a few runs, where a library tells only their mean."""

COUNTER_US = 1.0
"""OpenVINO counts whole microseconds: a layer that is shorter has one, and its rate is a bound from below."""

OPSET = 21
_MAXIMUM = "y = ReduceMax <keepdims = 1> (p, axes)"
CODE_SCALE = 0.05


def find_cpu_peaks(plan: Plan) -> tuple[Peaks | None, str]:
    """Peaks of this machine for an engine, or why there are none."""
    try:
        return measure_cpu_peaks(plan.model.library, plan.options), ""
    except (DeviceError, ModelError) as error:
        return None, f"the peaks of this machine could not be measured: {error.message}"


def measure_cpu_peaks(library: str, options: ExecOptions) -> Peaks:
    """Peaks of this machine for an engine of `library` that runs with `options`; about half a second.

    Raises:
        DeviceError, ModelError: the library cannot run the probes.
    """
    operations = 2 * SIZE**3
    rates = {}
    for name in (options.float_precision, "int8"):
        x = {"x": np.ones((SIZE, SIZE), np.float32)}
        rates[name] = operations / _longest_layer_us(library, options, _product(is_int8=name == "int8"), x)
    return Peaks(
        operations_per_us=rates,
        bytes_per_us=tuple((size, size / _reading_us(library, options, size)) for size in SETS_BYTES),
        launch_us=_link_us(library, options),
        source=f"measured here with {library}, the fastest of a few runs",
    )


def _reading_us(library: str, options: ExecOptions, size: int) -> float:
    x = np.ones((size // (4 * ROW), ROW), np.float32)
    return _longest_layer_us(library, options, _maximum(len(x)), {"p": x})


def _longest_layer_us(
    library: str, options: ExecOptions, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]
) -> float:
    """Of the layer that takes longest, its fastest run."""
    lowered = _lowered(library, model)
    if library == "openvino":
        return min(_mean_us(lowered, options, inputs) for _ in range(REPEATS))
    from quantrt.runtime.onnxruntime.watch import watch_onnxruntime  # onnxruntime is optional

    found = watch_onnxruntime(lowered, options, inputs, runs=RUNS, warmup_runs=1)
    return 1e3 * min(max(event.time_ms for event in events) for _, events in found)


def _mean_us(model: LibraryModel, options: ExecOptions, inputs: Mapping[str, np.ndarray]) -> float:
    """Of the layer that takes longest, in OpenVINO, which tells means over runs alone."""
    from quantrt.runtime.openvino.watch import WatchedOpenVino  # openvino is optional

    executor = WatchedOpenVino(model, options)
    try:
        _, times_ms, _ = executor.watch(inputs, runs=RUNS // REPEATS, warmup_runs=1)
    finally:
        executor.close()
    return max(COUNTER_US, 1e3 * max(times_ms))


def _link_us(library: str, options: ExecOptions) -> float:
    """Of a run of the chain, by each of its links."""
    executor = open_executor(_lowered(library, _chain()), options)
    found = []
    try:
        for _ in range(LINKS):
            start = time.perf_counter()
            executor.run({"x": np.ones((1, TINY), np.float32)})
            found.append((time.perf_counter() - start) * 1e6)
    finally:
        executor.close()
    return min(found) / LINKS


def _lowered(library: str, model: onnx.ModelProto) -> LibraryModel:
    graph = ir.from_proto(model)
    return lower_to_onnxruntime(graph) if library == "onnxruntime" else lower_to_openvino(graph)


def _product(*, is_int8: bool) -> onnx.ModelProto:
    """Maxima over the rows of x @ w, so that hardly anything is written."""
    ports = f"(float[{SIZE}, {SIZE}] x) => (float[{SIZE}, 1] y)"
    if not is_int8:
        text = f"{ports} {{ p = MatMul (x, w) {_MAXIMUM} }}"
        return _model(text, {"w": np.ones((SIZE, SIZE), np.float32)})
    text = f"""{ports} {{
        q = QuantizeLinear (x, s, u)
        f = DequantizeLinear (q, s, u)
        v = DequantizeLinear <axis = 1> (w, t, z)
        p = MatMul (f, v) {_MAXIMUM} }}"""
    return _model(
        text,
        {
            "w": np.ones((SIZE, SIZE), np.int8),
            "s": np.array(CODE_SCALE, np.float32),
            "u": np.array(128, np.uint8),
            "t": np.full(SIZE, CODE_SCALE, np.float32),
            "z": np.zeros(SIZE, np.int8),
        },
    )


def _maximum(rows: int) -> onnx.ModelProto:
    return _model(f"(float[{rows}, {ROW}] p) => (float[{rows}, 1] y) {{ {_MAXIMUM} }}", {})


def _chain() -> onnx.ModelProto:
    names = ["x", *(f"v{number}" for number in range(LINKS - 1)), "y"]
    links = " ".join(f"{made} = MatMul ({read}, w)" for read, made in pairwise(names))
    text = f"(float[1, {TINY}] x) => (float[1, {TINY}] y) {{ {links} }}"
    return _model(text, {"w": np.eye(TINY, dtype=np.float32)})


def _model(text: str, constants: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {OPSET}]> probe {text}')
    axes = {"axes": np.array([-1], np.int64)} if "axes" in text else {}
    for name, array in {**constants, **axes}.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model
