# SPDX-License-Identifier: Apache-2.0
"""Damage: how much noise each region alone makes in the model's outputs when it is quantized.

    damage[region] = |outputs with the region quantized - float outputs|^2 / |float outputs|^2

the mean over the floating-point outputs. Roundings of different regions are nearly independent, so the
damages of several add up; where they do not, `quantrt.assign.assignment.repair` finds out.

One switched graph serves every region. It is cut where few tensors pass: what comes before the region's cut
is the float model, and is run once for all regions behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.assign.tables.region import Region, Surroundings, switches_of_regions
from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.errors import DataError, InternalError, ModelError
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.model.cuts import Cut, cut_part
from quantrt.quantize.algorithms.balance_tables import balance_tables
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.qdq.segments import find_cuts, with_switches
from quantrt.quantize.qdq.switches import FLAGS, Switched, switch_layers
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.reference.metrics import mean_noise_ratio
from quantrt.reference.row_sets import RowSet, row_sets

__all__ = ["Sensitivity"]

CUTS = 8
"""Each costs a session; with N cuts a region costs (1 + 1/N) / 2 of a whole run on average."""

ROWS = 8
"""Samples per run where shapes allow."""

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class _Samples:
    """A few samples, and the float outputs that the noise of every region is measured against."""

    batches: Sequence[Batch]
    fixed_batch: int | None

    def own_rows(self, array: Array, batch: Batch) -> Array:
        """Without the rows that only pad a batch to the size the model insists on."""
        rows = self.fixed_batch
        is_padded = rows not in (None, batch.count) and array.ndim and len(array) == rows
        return array[: batch.count] if is_padded else array


class Sensitivity:
    """Measures damage of one quantized model.

    Args:
        fitted: everything that can be is 8-bit in it, and its float graph is kept.
        data: samples, the first of which are used; calibration samples do.
        samples: how many of them.

    Raises:
        ModelError: the model has no floating-point output.
    """

    def __init__(self, fitted: Fitted, regions: Sequence[Region], data: Dataset, *, samples: int) -> None:
        if fitted.floats is None:
            raise InternalError("the float graph behind a quantized model is not kept")
        self.regions = tuple(regions)
        self._floats = fitted.floats
        self._switched = _switched(fitted.model, fitted.floats)
        self._outputs = _float_outputs(fitted.floats)
        self._sets = row_sets(fitted.floats.graph)
        around = Surroundings(fitted.floats.graph, regions)
        self._switches = switches_of_regions(self._switched, regions, around)
        self._samples = _Samples(list(data.batches(ROWS, samples)), data.layout.fixed_batch)
        self._whole: _Part | None = None

    @property
    def samples(self) -> int:
        """How many samples are used."""
        return sum(batch.count for batch in self._samples.batches)

    def measure(
        self,
        known: Mapping[str, float],
        on_measured: Callable[[Mapping[str, float]], None] = lambda found: None,
    ) -> dict[str, float]:
        """Damage of every region alone, by name.

        Args:
            known: damages that need not be measured again.
            on_measured: called with all that is known after each region.
        """
        found = {region.name: known[region.name] for region in self.regions if region.name in known}
        cuts = find_cuts(self._floats.graph, CUTS)
        places = {node.name or "": place for place, node in enumerate(self._floats.graph)}
        starts = [min(places[node] for node in region.nodes) for region in self.regions]
        held: list[Arrays] = [{} for _ in self._samples.batches]
        at = cuts[0]
        for number, cut in enumerate(cuts):
            end = cuts[number + 1].position if number + 1 < len(cuts) else len(places)
            mine = [
                index
                for index, region in enumerate(self.regions)
                if cut.position <= starts[index] < end and region.name not in found
            ]
            if not mine:
                continue
            held, at = self._advance(held, at, cut), cut
            part = self._part(cut, held, {switch for index in mine for switch in self._switches[index]})
            for index in mine:
                found[self.regions[index].name] = part.noise_ratio(self._switches[index])
                on_measured(found)
        return {region.name: found[region.name] for region in self.regions}

    def joint(self, names: Collection[str]) -> float:
        """Noise of the outputs with all of these regions quantized together."""
        if self._whole is None:
            every = range(len(self._switched.layers))
            self._whole = self._part(Cut(0, ()), [{} for _ in self._samples.batches], every)
        on = [
            switch
            for region, switches in zip(self.regions, self._switches, strict=True)
            if region.name in names
            for switch in switches
        ]
        return self._whole.noise_ratio(on)

    def _advance(self, held: Sequence[Arrays], at: Cut, to: Cut) -> list[Arrays]:
        """The tensors at a later cut, for every batch."""
        kept = [name for name in to.tensors if name in at.tensors]
        wanted = [name for name in to.tensors if name not in kept]
        moved: list[Arrays] = [{name: arrays[name] for name in kept} for arrays in held]
        if not wanted:
            return moved
        session = float_session(cut_part(self._floats, at.tensors, wanted), optimize=False)
        for number, (batch, arrays) in enumerate(zip(self._samples.batches, held, strict=True)):
            made = _run(session, wanted, {**batch.inputs, **arrays})
            moved[number] = {**moved[number], **made}
        return moved

    def _part(self, cut: Cut, held: Sequence[Arrays], kept: Collection[int]) -> _Part:
        graph = cut_part(with_switches(self._switched.graph, kept), cut.tensors, self._outputs)
        return _Part(graph, self._outputs, self._switched, self._samples, held, sets=self._sets)


class _Part:
    """The end of a switched graph from one cut on, and its float outputs."""

    def __init__(
        self,
        graph: ir.Model,
        outputs: Sequence[str],
        switched: Switched,
        samples: _Samples,
        held: Sequence[Arrays],
        *,
        sets: Sequence[RowSet],
    ) -> None:
        self._session = float_session(graph, optimize=False)
        self._names = list(outputs)
        self._switched = switched
        self._samples = samples
        self._held = held
        self._sets = sets
        self._floats = self._run(())

    def noise_ratio(self, switches: Sequence[int]) -> float:
        """Noise over signal power of the outputs with these switches on; the mean over the outputs."""
        return mean_noise_ratio(self._floats, self._run(switches), self._sets)

    def _run(self, switches: Sequence[int]) -> list[Arrays]:
        flags = self._switched.flags(*switches)
        found: list[Arrays] = []
        for batch, arrays in zip(self._samples.batches, self._held, strict=True):
            made = _run(self._session, self._names, {**batch.inputs, **arrays, FLAGS: flags})
            found.append({name: self._samples.own_rows(array, batch) for name, array in made.items()})
        return found


def _switched(model: QuantizedModel, floats: ir.Model) -> Switched:
    """The model with a switch before everything that is rounded.

    Activations that a library would do on codes are written as they are: a switch needs their floats. Tables
    have the columns of those that were rounded, whose factors stand behind them on either side of a switch.
    """
    plain = replace(model, target=replace(model.target, quantizes_outputs=False))
    axes = {use: tensor.qparams.axis for use, tensor in model.weights.items()}
    return switch_layers(write(plain), balance_tables(floats, axes), model.placement.made)


def _float_outputs(graph: ir.Model) -> list[str]:
    floats = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)
    names = [value.name or "" for value in graph.graph.outputs if value.dtype in floats]
    if not names:
        raise ModelError("the model has no floating-point output to measure noise on")
    return names


def _run(session: Any, names: Sequence[str], feed: Arrays) -> dict[str, Array]:
    wanted = {value.name for value in session.get_inputs()}
    try:
        results = session.run(list(names), {name: array for name, array in feed.items() if name in wanted})
    except ORT_ERRORS as error:
        raise DataError("ONNX Runtime cannot run the model on these data", got=str(error).strip()) from error
    return dict(zip(names, results, strict=True))
