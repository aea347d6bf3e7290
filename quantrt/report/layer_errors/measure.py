# SPDX-License-Identifier: Apache-2.0
"""The error of every layer: alone, with everything before it quantized, and in the compiled engine.

Samples are streamed; the tensors of a few layers are held at once, as many as fit GROUP_BYTES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.converted import bound_inputs
from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.calibrate.tap_sizes import TapSizes
from quantrt.config import CompareConfig
from quantrt.quantize.qdq.switches import FLAGS, Switched
from quantrt.reference.metrics import Error
from quantrt.report.layer_errors.extents import Extent
from quantrt.report.layer_errors.isolate import with_twins
from quantrt.report.layer_errors.rows import in_rows
from quantrt.report.layer_errors.sessions import Part
from quantrt.report.subject import Subject, own_rows

__all__ = ["LayerErrors", "measure_layers"]

GROUP_BYTES = 256 << 20
"""Tensors held at once, all forms of all layers of a group together."""

FORMS = 5
"""Arrays of a layer's size at once: float, alone, quantized, rounded, compiled."""

Arrays = Mapping[str, np.ndarray]


@dataclass
class LayerErrors:
    """What was found of one layer; each against the float model, but `path`.

    Attributes:
        alone: only this layer is quantized.
        quantized: this layer and all before it are, in floats.
        compiled: the engine's; None where it cannot be looked at.
        path: the engine against the fake-quantized model.
        rounded: the fake-quantized model in the form that the engine is compared in.
        nan, not_finite: NaN, and NaN and infinities together, in the engine's tensor.
    """

    extent: Extent
    alone: Error = field(default_factory=Error)
    quantized: Error = field(default_factory=Error)
    compiled: Error | None = None
    path: Error = field(default_factory=Error)
    rounded: Error = field(default_factory=Error)
    nan: int = 0
    not_finite: int = 0

    def add(self, off: Arrays, on: Arrays, twin: str, engine: Arrays) -> None:
        """One batch: the switched graph with nothing quantized, with everything quantized, the engine."""
        floats = off[self.extent.output]
        self.alone.add(floats, off[twin])
        self.quantized.add(floats, on[self.extent.output])
        tap = self.extent.engine
        array = engine.get(tap.name) if tap is not None else None
        if tap is None or array is None or array.size != floats.size:
            return
        got = in_rows(tap.floats(array), floats.shape)
        wanted = on[self.extent.rounded or self.extent.output]
        self.compiled = self.compiled or Error()
        self.compiled.add(floats, got)
        self.path.add(wanted, got)
        self.rounded.add(floats, wanted)
        self.nan += int(np.count_nonzero(np.isnan(got)))
        self.not_finite += int(got.size - np.count_nonzero(np.isfinite(got)))


def measure_layers(
    switched: Switched,
    extents: Sequence[Extent],
    subject: Subject,
    dataset: Dataset,
    config: CompareConfig,
    *,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> list[LayerErrors]:
    """The errors of every extent, in their order."""
    graphs = _Graphs(switched, with_twins(switched, extents), subject)
    found = [LayerErrors(extent) for extent in extents]
    done = 0
    for group in _groups(found, switched.graph, dataset, config):
        _measure(group, graphs, dataset, config)
        done += len(group)
        if on_progress is not None:
            on_progress(done, len(found))
    return found


@dataclass(frozen=True)
class _Graphs:
    """What a group is measured in.

    Attributes:
        twins: the switched graph with twins, and what they are called by the layer's name.
    """

    switched: Switched
    twins: tuple[ir.Model, Mapping[str, str]]
    subject: Subject


def _measure(group: Sequence[LayerErrors], graphs: _Graphs, dataset: Dataset, config: CompareConfig) -> None:
    switched, (model, twins) = graphs.switched, graphs.twins
    outputs = [row.extent.output for row in group]
    off = Part(model, [*outputs, *(twins[row.extent.layer.name] for row in group)])
    on = Part(switched.graph, [*outputs, *(row.extent.rounded for row in group if row.extent.rounded)])
    none, every = switched.flags(), switched.flags(*range(len(switched.layers)))
    taps = list(dict.fromkeys(row.extent.engine.name for row in group if row.extent.engine is not None))
    with closing(_Engine(graphs.subject, taps)) as engine:
        for batch in dataset.batches(config.batch_size, config.max_samples):
            floats = _rows(off.run({**batch.inputs, FLAGS: none}), batch, dataset)
            rounded = _rows(on.run({**batch.inputs, FLAGS: every}), batch, dataset)
            compiled = _rows(engine.run(batch.inputs), batch, dataset)
            for row in group:
                row.add(floats, rounded, twins[row.extent.layer.name], compiled)


class _Engine:
    """The compiled model with some tensors as its outputs; without any it is not opened."""

    def __init__(self, subject: Subject, taps: Sequence[str]) -> None:
        self._executor = subject.tap(taps) if taps else None
        self._inputs = subject.inputs

    def run(self, inputs: Arrays) -> Arrays:
        """The tensors by name."""
        return {} if self._executor is None else self._executor.run(bound_inputs(inputs, self._inputs))

    def close(self) -> None:
        """Free the executor."""
        if self._executor is not None:
            self._executor.close()


def _rows(arrays: Arrays, batch: Batch, dataset: Dataset) -> Arrays:
    return own_rows(arrays, batch, dataset)


def _groups(
    found: Sequence[LayerErrors], graph: ir.Model, dataset: Dataset, config: CompareConfig
) -> Iterator[list[LayerErrors]]:
    """Neighbours whose tensors fit the bound together, at least one at a time."""
    batch = next(iter(dataset.batches(config.batch_size, config.max_samples)))
    flags = next(value for value in graph.graph.inputs if value.name == FLAGS)
    count = int(flags.shape[0]) if flags.shape is not None else 0  # type: ignore[arg-type]
    names = [row.extent.output for row in found]
    sizes = TapSizes(graph, names).of({**batch.inputs, FLAGS: np.zeros(count, np.bool_)})
    group: list[LayerErrors] = []
    held_bytes = 0
    for row in found:
        size_bytes = FORMS * sizes[row.extent.output]
        if group and held_bytes + size_bytes > GROUP_BYTES:
            yield group
            group, held_bytes = [], 0
        group.append(row)
        held_bytes += size_bytes
    yield group
