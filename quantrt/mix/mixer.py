# SPDX-License-Identifier: Apache-2.0
"""Add the mixed candidate to a build, where there is one inside the budget.

time the regions in the float engine and in that of codes -> (damage of every region) -> solve -> build ->
measure -> solve again. It is tried where it is predicted to be faster than the fastest candidate inside the
budget.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quantrt.assign.assignment.assignment import Assigned, assign
from quantrt.assign.assignment.repair import WORTH_RATIO, Outcome, Round, repair
from quantrt.assign.tables.region import FLOAT, Region
from quantrt.assign.tables.tables import BuiltEngine, Tables, write_tables
from quantrt.calibrate.dataset import Dataset
from quantrt.config import ENGINE_ROUNDS
from quantrt.constrain.precisions import read_layer_precisions
from quantrt.errors import DataError, DeviceError, InternalError, ModelError
from quantrt.mix.contest import Contest, Pair, find_pair
from quantrt.mix.measure import Measurer
from quantrt.prepare import Event, Job
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.placement.place_by_config import place_by_config
from quantrt.report.built.mixed import mixed_report
from quantrt.report.engine_layers.watched import WatchedLayers
from quantrt.tactics.candidates import Candidate, Rejected

__all__ = ["Mixed", "add_mixed"]

log = logging.getLogger(__name__)

MIXED_ALREADY = (
    "not tried: the engine is inside the budget, and layers that are slower in 8 bits are float in it already"
)

LEAST_REGIONS = 2
"""With fewer there is nothing to mix."""

SURE_RATIO = 0.9
"""Of the time of what is had: a mix predicted to be slower than this is not built for a CPU, unless codes are
outside the budget by themselves. Predictions are within 10 % of what is measured, and rounds cost seconds."""


@dataclass(frozen=True)
class Mixed:
    """What came of trying.

    Attributes:
        name: of the candidate; None where none is inside the budget, or none was tried.
        report: JSON-ready; None where codes are not wanted at all.
        beside: the candidates that it is a mix of.
        watched: how long their layers took, by candidate, where these were watched.
    """

    name: str | None
    report: Mapping[str, Any] | None
    beside: tuple[str, ...] = ()
    watched: Mapping[str, WatchedLayers] = field(default_factory=dict)


def add_mixed(job: Job, contest: Contest, data: Dataset | None) -> Mixed:
    """Add the fastest mixed candidate inside the budget, where there is one.

    Args:
        data: samples that damage is measured on; None without any.
    """
    pair = find_pair(contest, job.config.budget.max_drop_ratio)
    if not job.config.assign.mixed or pair is None or data is None or data.is_random:
        return Mixed(None, None)
    mixer = _Mixer(job, contest, data, pair)
    try:
        return mixer.run()
    except (DataError, DeviceError, ModelError) as error:
        # What a library or a file refuses costs the mixed candidate, not the engine.
        mixer.close()
        log.warning("no mixed precision: %s", error.message)
        return Mixed(None, {"reason": f"given up: {error.message}", "rounds": []})


class _Mixer:
    """One try, between a float candidate and one with codes of one library."""

    def __init__(self, job: Job, contest: Contest, data: Dataset, pair: Pair) -> None:
        self._job = job
        self._contest = contest
        self._pair = pair
        candidate = contest.candidates[pair.codes]
        if candidate.fitted is None or candidate.fitted.floats is None:
            raise InternalError("a candidate with codes has no quantized model")
        self._fitted = candidate.fitted
        self._floats = candidate.fitted.floats
        self._spec = replace(candidate.spec, is_mixed=True, float_attention=True)
        self._best: tuple[float, Candidate] | None = None
        self._to_beat_ms = float("inf")
        self._regions: tuple[Region, ...] = ()
        self._float_already = self._left_float()
        self._measurer = Measurer(job, contest, data, pair, self._fitted)

    def run(self) -> Mixed:
        """Try, and add the best candidate to the contest."""
        path = self._job.config.assign.tables
        if self._is_mixed_already() and path is None:
            return Mixed(None, {"reason": MIXED_ALREADY, "rounds": []})
        best_ms = self._measurer.best_ms
        tables = self._measurer.timed_tables(sessions=1)
        if len(tables.regions) < LEAST_REGIONS:
            return self._mixed(None, {"reason": "not tried: there is one region to quantize", "rounds": []})
        fastest = assign(tables, float("inf"))
        predicted_ms = float("inf") if fastest is None else fastest.predicted_ms
        if self._spec.library != "cuda" and self._is_worth_it(predicted_ms):
            # Whichever is faster of two, region by region, seems faster than it is: another session tells.
            predicted_ms = self._predicted_anew_ms(fastest)
        is_worth_it = self._is_worth_it(predicted_ms)
        if self._spec.library != "cuda" and (is_worth_it or path is not None):
            tables = self._measurer.timed_tables()
        if is_worth_it or path is not None:
            tables = self._measurer.with_damages(tables)
        if is_worth_it:
            outcome = self._repair(tables, best_ms)
        else:
            reason = (
                f"not tried: the fastest mix is predicted to take {predicted_ms:.3g} ms, "
                f"and {self._had_ms:.3g} ms are had without one"
            )
            outcome = Outcome(tables, (), None, reason)
        whole = replace(outcome.tables, damages=tables.damages)
        if path is not None:
            write_tables(whole, Path(path))
        name = None
        if self._best is not None:
            name = self._spec.name
            self._contest.candidates[name] = self._best[1]
        return self._mixed(name, mixed_report(replace(outcome, tables=whole)))

    def _mixed(self, name: str | None, report: Mapping[str, Any]) -> Mixed:
        beside = (self._pair.codes, self._pair.floats)
        return Mixed(name, report, beside, self._measurer.watched)

    def _predicted_anew_ms(self, assigned: Assigned | None) -> float:
        """Of an assignment, by a session that it was not chosen by."""
        costs = self._measurer.timed_tables(sessions=1, anew=True).costs
        if costs is None or assigned is None:
            return float("inf")
        return costs.predict_ms(assigned.precisions)

    def _is_worth_it(self, predicted_ms: float) -> bool:
        """Whether the fastest mix there can be is so much faster than what is had."""
        return predicted_ms <= (SURE_RATIO if self._has_all else WORTH_RATIO) * self._had_ms

    @property
    def _had_ms(self) -> float:
        """What a mix has to beat; codes that were not told from what is shipped are no slower for that."""
        measurer = self._measurer
        return min(measurer.best_ms, measurer.codes_ms) if self._has_all else measurer.best_ms

    @property
    def _has_all(self) -> bool:
        """Whether all of the codes may be had: on a CPU, where they were not found outside the budget."""
        accuracy = self._contest.choice.verdicts[self._pair.codes].accuracy
        is_inside = accuracy is None or accuracy.drop_ratio <= self._job.config.budget.max_drop_ratio
        return is_inside and self._spec.library != "cuda"

    def _is_mixed_already(self) -> bool:
        """Whether what would be shipped has these codes where they are faster, and nowhere else.

        So it is on a GPU, whose kernels are timed one by one as an engine is lowered. All that mixing could
        add is to keep damage out, and that is inside the budget. Another kind of codes, which is slower, may
        be inside too; then these are mixed all the same.
        """
        winner = self._contest.choice.winner
        return winner == self._pair.codes and self._spec.library == "cuda"

    def close(self) -> None:
        """Free the best engine so far."""
        if self._best is not None:
            self._best[1].executor.close()

    def joint(self, names: Collection[str]) -> float:
        """Noise of the outputs with these regions quantized together."""
        return self._measurer.joint(names)

    def build(self, assigned: Assigned) -> BuiltEngine:
        """Build the engine of an assignment and measure it; it is kept open while it is the best.

        Where all of the codes are inside the budget, accuracy is measured of what is faster. Where nothing
        came to be in codes, as nothing beside it is, it is the float engine under another name.
        """
        kept = self._float_already | {
            node: assigned.reasons[region.name]
            for region in self._regions
            for node in region.nodes
            if region.name in assigned.reasons
        }
        fitted = keep_float(self._fitted, kept, self._job.config.quantize)
        opened = self._contest.opener.open(self._spec, fitted)
        name = self._spec.name
        if isinstance(opened, Rejected):
            raise ModelError(f"{name} cannot be opened", got=opened.reason, hint="--no-mixed")
        latency_ms = self._measurer.brief_latencies({name: opened})[name]
        fitted = opened.fitted or fitted
        if latency_ms >= self._to_beat_ms or not fitted.model.has_int8:
            opened.executor.close()
            return BuiltEngine(self._realized(assigned, fitted), latency_ms)
        before = self._contest.candidates.get(name)
        self._contest.candidates[name] = opened
        try:
            accuracy = self._contest.check(name)
        finally:
            if before is None:
                del self._contest.candidates[name]
            else:
                self._contest.candidates[name] = before
        drop = float("inf") if accuracy is None else accuracy.drop_ratio
        self._keep_best(opened, latency_ms, drop)
        return BuiltEngine(self._realized(assigned, fitted), latency_ms, None, drop)

    def _left_float(self) -> dict[str, str]:
        """Nodes that could be 8-bit and are not: on a GPU they were timed, and lost."""
        placement = place_by_config(self._floats, self._fitted.model.target, self._job.config.quantize)
        could = {row.node for row in placement.decisions if row.is_int8}
        decisions = self._fitted.model.placement.decisions
        return {row.node: row.reason for row in decisions if row.node in could and not row.is_int8}

    def _keep_best(self, opened: Candidate, latency_ms: float, drop: float) -> None:
        is_inside = drop <= self._job.config.budget.max_drop_ratio
        if is_inside and (self._best is None or latency_ms < self._best[0]):
            if self._best is not None:
                self._best[1].executor.close()
            self._best = (latency_ms, opened)
        else:
            opened.executor.close()

    def _realized(self, assigned: Assigned, fitted: Fitted) -> dict[str, str]:
        """What regions really are: some can only be 8-bit beside others."""
        codes = {row.node for row in fitted.model.placement.decisions if row.is_int8}
        return {
            region.name: assigned.precisions[region.name] if codes & set(region.nodes) else FLOAT
            for region in self._regions
        }

    def _repair(self, tables: Tables, best_ms: float) -> Outcome:
        config = self._job.config
        self._regions = tables.regions
        wanted = read_layer_precisions(self._job.model, config).codes
        forced = {region.name for region in tables.regions if wanted & set(region.nodes)}
        if forced and not tables.damages:
            return Outcome(
                tables, (), None, "not tried: all of it is inside the budget, and layers have to be"
            )
        if not tables.damages:
            self._to_beat_ms = best_ms
        total = config.assign.assign_rounds or ENGINE_ROUNDS
        self._emit(0, total)
        done: list[Round] = []

        def on_round(one: Round) -> None:
            done.append(one)
            self._emit(len(done), total)
            log.info("%s", _round_text(len(done), one))

        return repair(
            replace(tables, damages=_never_float(tables.damages, forced)),
            self,
            max_drop_ratio=config.budget.max_drop_ratio,
            best_ms=best_ms,
            most_rounds=total,
            on_round=on_round,
        )

    def _emit(self, done: int, total: int) -> None:
        self._job.emit(Event("mixing precisions", done, total, "rounds"))


def _never_float(
    damages: Mapping[str, Mapping[str, float]], forced: Collection[str]
) -> dict[str, Mapping[str, float]]:
    """The damages, with a solver that may not take floats for regions that have to be codes."""
    return {name: {**row, FLOAT: float("inf")} if name in forced else row for name, row in damages.items()}


def _round_text(number: int, one: Round) -> str:
    engine = one.engine
    measured_ms = float("nan") if engine.latency_ms is None else engine.latency_ms
    drop = float("nan") if engine.drop_ratio is None else engine.drop_ratio
    return (
        f"mixed precision, round {number}: {engine.quantized_count} of {len(engine.assignment)} regions "
        f"in 8 bits, {measured_ms:.3g} ms ({one.assigned.predicted_ms:.3g} predicted), drop {drop:.4f}, "
        f"{'inside' if one.is_inside else 'outside'} the budget"
    )
