# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime sessions of a graph: the float oracle and the tap for activations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from quantrt.errors import ModelError, UsageError, close_match
from quantrt.ir.clone import clone
from quantrt.ir.mapped import release_pages
from quantrt.ir.ort_options import KEEP_FLOATS, KEEP_PAIRS, WAIT_ASLEEP
from quantrt.ir.pick_codes import pick_codes
from quantrt.ir.split import split_weights
from quantrt.threads import bounded_threads

__all__ = ["ORT_ERRORS", "add_weights", "float_session"]

log = logging.getLogger(__name__)

ORT_ERRORS: tuple[type[Exception], ...] = (
    ort_state.EPFail,
    ort_state.Fail,
    ort_state.InvalidArgument,
    ort_state.InvalidGraph,
    ort_state.InvalidProtobuf,
    ort_state.NoSuchFile,
    ort_state.NotImplemented,
    ort_state.RuntimeException,
    RuntimeError,
    ValueError,
)
"""What ONNX Runtime raises; its own classes share no base but Exception."""

_BY_FUSIONS: tuple[type[Exception], ...] = (ort_state.RuntimeException, RuntimeError)
"""What its fusions trip over; a model that it cannot run, fused or not, is refused by the others."""

_FLOAT8 = (ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2)

_QUIET = 3  # log severity: errors only


def float_session(
    graph: ir.Model,
    *,
    extra_outputs: Sequence[str] = (),
    threads: int | None = None,
    optimize: bool = True,
    keep_floats: bool = True,
) -> onnxruntime.InferenceSession:
    """A CPU session of `graph`, whose float products stay float between codes too.

    Without optimization it computes on the graph's own weights; with, ONNX Runtime makes one copy of them.

    Args:
        extra_outputs: values of the main graph to return after its own outputs, each once; a name that is
            an output already is not repeated.
        threads: threads per run; None for one per physical core, or per core that this process may use.
        optimize: let ONNX Runtime fuse and fold; without, every node runs as written.
        keep_floats: without it float products between codes become what a session without options makes of
            them: see quantrt.quantize.qdq.requantized.

    Raises:
        UsageError: an extra output does not exist; names the nearest.
        ModelError: ONNX Runtime refuses the model.
    """
    if extra_outputs:
        graph = _with_outputs(graph, extra_outputs)
    protobuf, weights = split_weights(pick_codes(graph))
    levels = _levels(graph, optimize=optimize)
    for level in levels:
        options = _options(graph, threads, level, keep_floats=keep_floats)
        kept = add_weights(options, weights, share=not optimize)
        try:
            session = onnxruntime.InferenceSession(
                protobuf, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except ORT_ERRORS as error:
            text = str(error).strip()
            if level == levels[-1] or not isinstance(error, _BY_FUSIONS):
                raise ModelError("ONNX Runtime cannot load the model", got=text) from error
            log.info("ONNX Runtime refuses the model, and gets it again with fewer fusions: %s", text)
        else:
            break
    for array in weights.values():
        release_pages(array)  # read while loading; what the session needs again comes back by itself
    session.quantrt_weights = kept
    return session


def _levels(graph: ir.Model, *, optimize: bool) -> tuple[Any, ...]:
    """What ONNX Runtime may rewrite, the most first: some of its fusions lose values that are outputs.

    A sum of two convolutions with biases becomes one node though one of them is an output too (1.30 to 1.32).
    """
    level = onnxruntime.GraphOptimizationLevel
    if not optimize:
        return (level.ORT_DISABLE_ALL,)
    if _has_float8(graph):  # its fusions of more give other results behind float8 pairs (1.31)
        return (level.ORT_ENABLE_BASIC,)
    return (level.ORT_ENABLE_ALL, level.ORT_ENABLE_BASIC)


def _options(
    graph: ir.Model, threads: int | None, level: Any, *, keep_floats: bool
) -> onnxruntime.SessionOptions:
    """Of a session; as in `float_session`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _QUIET
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = threads or bounded_threads() or 0  # 0: one per physical core
    options.graph_optimization_level = level
    if keep_floats:
        options.add_session_config_entry(*KEEP_FLOATS)
    options.add_session_config_entry(*WAIT_ASLEEP)
    if _has_float8(graph):
        options.add_session_config_entry(*KEEP_PAIRS)
    return options


def add_weights(
    options: onnxruntime.SessionOptions, weights: Mapping[str, np.ndarray], *, share: bool = False
) -> tuple[Any, ...]:
    """Give a session the arrays of `split_weights`.

    Args:
        share: let the session compute on these arrays instead of its own copies. Only for a session without
            graph optimizations: one that transposes a weight in place would get the old one back.

    Returns:
        What must be kept alive as long as the session: it holds bare pointers to the arrays.
    """
    if not weights:
        return ()
    values = {name: _to_ort_value(array) for name, array in weights.items()}
    options.add_external_initializers(list(values), list(values.values()))
    if share:
        for name, value in values.items():
            options.add_initializer(name, value)
    return (weights, values)


def _has_float8(graph: ir.Model) -> bool:
    """Whether the main graph has codes that are float8."""
    values = [*graph.graph.initializers.values(), *(value for node in graph.graph for value in node.outputs)]
    return any(value.dtype in _FLOAT8 for value in values)


def _to_ort_value(array: np.ndarray) -> Any:
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    # bfloat16 and the 8-bit floats: numpy has no such type of its own, so the bits are passed on.
    bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    onnx_type = int(ir.DataType.from_numpy(array.dtype))
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx_type)


def _with_outputs(graph: ir.Model, names: Sequence[str]) -> ir.Model:
    tapped = clone(graph)
    values = {value.name: value for node in tapped.graph for value in node.outputs if value.name}
    values.update({value.name: value for value in tapped.graph.inputs if value.name})
    known = {value.name for value in tapped.graph.outputs}
    for name in dict.fromkeys(names):
        if name not in values:
            near = close_match(name, values)
            raise UsageError(f"the model has no tensor '{name}'", hint=f"'{near}'" if near else None)
        if name not in known:
            tapped.graph.outputs.append(values[name])
    return tapped
