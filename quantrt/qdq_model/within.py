# SPDX-License-Identifier: Apache-2.0
"""A quantized model kept inside an accuracy budget: judged as a file, with harmful layers left float."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from quantrt.assign.accuracy.checked import Checked
from quantrt.assign.accuracy.metric import Metric
from quantrt.assign.tables.region import Region, find_regions
from quantrt.assign.tables.sensitivity import Sensitivity
from quantrt.calibrate.dataset import Dataset
from quantrt.config import FILE_ROUNDS, Budget, BuildConfig
from quantrt.errors import InternalError
from quantrt.prepare import Event, OnEvent
from quantrt.qdq_model.file_graph import file_graph
from quantrt.qdq_model.judge import Judge
from quantrt.qdq_model.judged import Judged, fewest_floats, least_lost
from quantrt.qdq_model.operations import Operations
from quantrt.qdq_model.search import Searched, search
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.quantized_model import Placement

__all__ = ["Outcome", "Wanted", "keep_within"]

log = logging.getLogger(__name__)

NOT_TRIED = "not tried: "
ON_OTHER_SCALES = "layers go back to floats on ranges that were observed here, and these scales are others"


@dataclass(frozen=True)
class Wanted:
    """A budget, and what it is measured on.

    Attributes:
        metric: that of the budget.
        checked: what accuracy is measured on; there are samples.
        samples: that damage is measured on.
    """

    budget: Budget
    metric: Metric
    checked: Checked
    samples: Dataset


@dataclass(frozen=True)
class Outcome:
    """What came of a budget.

    Attributes:
        budget: that was asked for, its metric by name.
        checked_on: what accuracy was measured on.
        whole: everything that can be is in codes.
        searched: the rounds behind it; None where it is inside the budget, or none were tried.
        damages: noise in the outputs that each region makes alone; empty where none was measured.
        regions: of the whole.
        operations: of one run of the model.
        reason: why no further round was made, one sentence.
    """

    budget: Budget
    checked_on: str
    whole: Judged
    searched: Searched | None
    damages: Mapping[str, float]
    regions: tuple[Region, ...]
    operations: Operations
    reason: str

    @property
    def made(self) -> tuple[Judged, ...]:
        """All that was judged, in its order."""
        rounds = () if self.searched is None else self.searched.rounds
        return (self.whole, *(one.judged for one in rounds))

    @cached_property
    def best(self) -> Judged:
        """Of those inside the budget the one with the fewest floats; without any, what lost the least."""
        return fewest_floats(self.made) or least_lost(self.made)


def keep_within(
    fitted: Fitted, wanted: Wanted, config: BuildConfig, *, can_mix: bool, emit: OnEvent
) -> Outcome:
    """Judge a quantized model, and where it is outside the budget others with layers left float.

    Args:
        fitted: everything that can be is in codes.
        config: what it was quantized with, and how much is tried.
        can_mix: whether its scales are those of `quantrt.quantize.fit.fit.fit` on observed ranges.
    """
    keeper = _Keeper(fitted, wanted, config, emit)
    whole = keeper.make(())
    if whole.is_inside:
        return keeper.outcome(
            whole, None, {}, "everything that can be is 8-bit, and that is inside the budget"
        )
    if not config.assign.mixed:
        return keeper.outcome(whole, None, {}, NOT_TRIED + "mixing was not wanted")
    if not can_mix:
        return keeper.outcome(whole, None, {}, NOT_TRIED + ON_OTHER_SCALES)
    damages = keeper.damages()
    total = config.assign.assign_rounds or FILE_ROUNDS
    keeper.emit("leaving layers float", 0, total, "rounds")
    searched = search(
        whole,
        damages,
        {region.name: keeper.operations.of(region) for region in keeper.regions},
        keeper,
        metric=wanted.metric.name,
        max_drop_ratio=wanted.budget.max_drop_ratio,
        most_rounds=total,
        on_round=lambda done: keeper.emit("leaving layers float", done, total, "rounds"),
    )
    return keeper.outcome(whole, searched, damages, searched.reason)


class _Keeper:
    """The workshop of a search."""

    def __init__(self, fitted: Fitted, wanted: Wanted, config: BuildConfig, emit: OnEvent) -> None:
        if fitted.floats is None:
            raise InternalError("the float graph behind a quantized model is not kept")
        self._fitted = fitted
        self._wanted = wanted
        self._config = config
        self._emit = emit
        self._judge = Judge(
            fitted.model.model.graph,
            fitted.model.target,
            wanted.metric,
            wanted.checked,
            max_drop_ratio=wanted.budget.max_drop_ratio,
            on_progress=lambda done, total: self.emit("checking", done, total, "samples"),
        )
        self.regions = _coded_regions(fitted.model.placement)
        first = next(iter(wanted.samples.batches(1, 1)))
        self.operations = Operations.count(fitted.floats, first.inputs)
        self._damages: Mapping[str, float] = {}

    def emit(self, stage: str, done: int, total: int | None, unit: str) -> None:
        """Tell of progress."""
        self._emit(Event(stage, done, total, unit))

    @cached_property
    def _sensitivity(self) -> Sensitivity:
        count = self._config.assign.sensitivity_samples
        return Sensitivity(self._fitted, self.regions, self._wanted.samples, samples=count)

    def damages(self) -> Mapping[str, float]:
        """Noise that each region makes alone."""

        def on_measured(found: Mapping[str, float]) -> None:
            self.emit("measuring damage", len(found), len(self.regions), "regions")

        on_measured({})
        self._damages = self._sensitivity.measure({}, on_measured)
        return self._damages

    def joint(self, names: Collection[str]) -> float:
        """Noise of the outputs with these regions quantized together."""
        return self._sensitivity.joint(names)

    def make(self, left_float: Collection[str]) -> Judged:
        """Make the model with these regions float, and judge its file."""
        kept = {
            node: _reason(self._damages[region.name])
            for region in self.regions
            if region.name in left_float
            for node in region.nodes
        }
        made = keep_float(self._fitted, kept, self._config.quantize) if kept else self._fitted
        accuracy = self._judge.accuracy(file_graph(made.model))
        is_inside = accuracy.drop_ratio <= self._wanted.budget.max_drop_ratio
        floats = self._left_float(made)
        count = sum(self.operations.of(region) for region in self.regions if region.name in floats)
        log.info(
            "%d of %d layers float: %s drop %.4g, %s the budget",
            len(floats),
            len(self.regions),
            accuracy.metric,
            accuracy.drop_ratio,
            "inside" if is_inside else "outside",
        )
        return Judged(made, floats, count, accuracy, is_inside)

    def _left_float(self, made: Fitted) -> dict[str, str]:
        """Regions that are float in a model, with the reason: some can only be 8-bit beside others."""
        placement = made.model.placement
        coded, reasons = _coded_nodes(placement), {row.node: row.reason for row in placement.decisions}
        return {region.name: reasons[region.name] for region in self.regions if not coded & set(region.nodes)}

    def outcome(
        self, whole: Judged, searched: Searched | None, damages: Mapping[str, float], reason: str
    ) -> Outcome:
        """All of it."""
        return Outcome(
            budget=self._wanted.budget,
            checked_on=self._wanted.checked.name,
            whole=whole,
            searched=searched,
            damages=damages,
            regions=self.regions,
            operations=self.operations,
            reason=reason,
        )


def _reason(damage: float) -> str:
    return f"kept float: damage, in int8 it alone makes noise {damage:.1e} of the outputs' power"


def _coded_nodes(placement: Placement) -> frozenset[str]:
    """Names of the nodes that compute on codes, or whose weights are codes that floats multiply."""
    stored = {node for node, _ in placement.weights}
    return frozenset(row.node for row in placement.decisions if row.is_int8) | stored


def _coded_regions(placement: Placement) -> tuple[Region, ...]:
    """A region for each of them, in topological order."""
    coded = _coded_nodes(placement)
    rows = (replace(row, is_int8=row.node in coded) for row in placement.decisions)
    return find_regions(replace(placement, decisions=tuple(rows)))
