# SPDX-License-Identifier: Apache-2.0
"""Sizes of inputs without data: the usual ones, or the largest below that a model can run.

A table of 64 positions takes no text of 128 tokens, and nothing in the declared shapes says so. Only a model
that reads such a table is run to find out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir
from onnxruntime import InferenceSession

from quantrt.calibrate.dataset import Dataset, random_dataset
from quantrt.calibrate.readers.random import SEQUENCE_SIZE, free_size
from quantrt.errors import ModelError
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.model import Model

__all__ = ["made_up_data", "runnable_inputs"]

LEAST_TABLE = 3
"""Rows of a table that may be of positions; tables of two are of token types."""

READERS = ("Gather", "GatherElements", "GatherND", "Slice", "Split")


def made_up_data(model: Model, samples: int, seed: int) -> Dataset:
    """Random samples of sizes that the model can run."""
    return random_dataset(runnable_inputs(model), samples, seed)


def runnable_inputs(model: Model) -> tuple[TensorSpec, ...]:
    """The inputs; free sizes behind the first axis are set where the usual one is too large for the model."""
    tables = _short_tables(model.graph.graph)
    if not tables or not any(_is_free(spec) for spec in model.inputs):
        return model.inputs
    halves = [SEQUENCE_SIZE >> shift for shift in range(SEQUENCE_SIZE.bit_length())]
    try:
        session = float_session(model.graph, optimize=False)
    except ModelError:
        return model.inputs  # whoever runs it says why it cannot be run
    for size in sorted({*halves, *tables}, reverse=True):
        specs = [_with_size(spec, size) for spec in model.inputs]
        if _runs(model.graph.graph, session, specs):
            return model.inputs if size == SEQUENCE_SIZE else tuple(specs)
    return model.inputs


def _short_tables(graph: ir.Graph) -> set[int]:
    """Rows of constants of which some are read, on any axis but that of features, where they are few."""
    found: set[int] = set()
    for node in graph:
        table = node.inputs[0] if node.op_type in READERS else None
        if table is None or not table.is_initializer() or table.shape is None or len(table.shape) < 2:
            continue
        found |= {size for size in table.shape.dims[:-1] if isinstance(size, int)}
    return {size for size in found if LEAST_TABLE <= size < SEQUENCE_SIZE}


def _is_free(spec: TensorSpec) -> bool:
    """Whether the usual size of a text would be taken for one of its axes."""
    sizes = (spec.shape or ())[1:]
    return free_size(spec) == SEQUENCE_SIZE and not all(isinstance(size, int) for size in sizes)


def _with_size(spec: TensorSpec, size: int) -> TensorSpec:
    if not _is_free(spec) or spec.shape is None:
        return spec
    sizes = (dim if isinstance(dim, int) else size for dim in spec.shape[1:])
    return replace(spec, shape=(*spec.shape[:1], *sizes))


def _runs(graph: ir.Graph, session: InferenceSession, specs: Sequence[TensorSpec]) -> bool:
    """Whether these sizes run, in the types of the graph whatever its engine's inputs are bound to."""
    types = {value.name: value.dtype for value in graph.inputs}
    kept = [(spec, dtype) for spec in specs if (dtype := types.get(spec.name)) is not None]
    own = [replace(spec, dtype=dtype.numpy().name) for spec, dtype in kept]
    try:
        session.run(None, next(iter(random_dataset(own, 1, 0).batches(1, 1))).inputs)
    except ORT_ERRORS:
        return False
    return True
