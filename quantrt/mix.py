# SPDX-License-Identifier: Apache-2.0
"""The mixed candidate of a build: int8 where it is fast and harmless, floats elsewhere.

time the regions in the float and the 8-bit engine -> (damage of every region) -> solve -> build -> measure ->
solve again. It is tried where it is predicted to be faster than the fastest candidate inside the budget.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from quantrt.assign.accuracy import Accuracy
from quantrt.assign.assignment import Assigned, assign, uniform
from quantrt.assign.choose import Choice
from quantrt.assign.cost_model import TimedEngine, cost_model
from quantrt.assign.region import FLOAT, Surroundings, find_regions
from quantrt.assign.repair import WORTH_RATIO, Outcome, Round, repair
from quantrt.assign.sensitivity import Sensitivity
from quantrt.assign.sizes import size_model
from quantrt.assign.tables import BuiltEngine, Tables, read_tables, write_tables
from quantrt.calibrate.dataset import Dataset
from quantrt.errors import DataError, DeviceError, InternalError, ModelError
from quantrt.prepare import Event, Job
from quantrt.quantize.exclusions import excluded_nodes
from quantrt.quantize.fit import GIVEN_SCALES, Fitted
from quantrt.quantize.mixed import keep_float
from quantrt.report.mixed_report import mixed_report
from quantrt.report.timed_layers import timed_engine
from quantrt.tactics.candidates import Candidate, Opener, Rejected, Spec
from quantrt.tactics.time_candidates import time_candidates
from quantrt.tactics.timing import Latency, compare_paired

__all__ = ["Check", "Contest", "Mixed", "add_mixed", "check_tables", "remembered"]

log = logging.getLogger(__name__)

BRIEF_RATIO = 0.25
"""Part of the timed seconds that an engine of one round gets; the best of them gets all of them later."""

LEAST_REGIONS = 2
"""With fewer there is nothing to mix."""

SAVE_EVERY = 4
"""Regions after which the tables are written."""


Check = Callable[[str], Accuracy | None]
"""Measures a candidate's accuracy, by name; None without data."""


@dataclass(frozen=True)
class Contest:
    """The candidates of a build so far.

    Attributes:
        candidates: open ones, by name; the mixed one is added here.
        latencies: of the finalists.
        choice: among those.
        check: each candidate is measured once, however often it is asked for.
        inputs: that are timed.
    """

    candidates: dict[str, Candidate]
    latencies: Mapping[str, Latency]
    choice: Choice
    check: Check
    inputs: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Mixed:
    """What came of trying.

    Attributes:
        name: of the candidate; None where none is inside the budget, or none was tried.
        report: JSON-ready; None where int8 is not wanted at all.
    """

    name: str | None
    report: Mapping[str, Any] | None


def remembered(check: Check, candidates: Mapping[str, Candidate]) -> Check:
    """The same, measuring every candidate once; another one under a known name is another candidate."""
    known: dict[int, tuple[object, Accuracy | None]] = {}  # executors are kept, so that ids stay theirs

    def once(name: str) -> Accuracy | None:
        executor = candidates[name].executor
        if id(executor) not in known:
            known[id(executor)] = (executor, check(name))
        return known[id(executor)][1]

    return once


def add_mixed(job: Job, contest: Contest, data: Dataset | None) -> Mixed:
    """Add the fastest mixed candidate inside the budget, where there is one.

    Args:
        data: samples that damage is measured on; None without any.

    Raises:
        InternalError: what was excluded by the user is 8-bit in it.
    """
    pair = _pair(contest)
    if not job.config.assign.mixed or job.config.device.device == "cuda":
        return Mixed(None, None)
    if pair is None or data is None or data.is_random:
        return Mixed(None, None)
    quantized, floating = pair
    mixer = _Mixer(job, contest, data, quantized, floating)
    try:
        return mixer.run()
    except (DataError, DeviceError, ModelError) as error:
        # What a library or a file refuses costs the mixed candidate, not the engine.
        mixer.close()
        log.warning("no mixed precision: %s", error.message)
        return Mixed(None, {"reason": f"given up: {error.message}", "rounds": []})


def check_tables(path: str | None) -> None:
    """Nothing is measured for a file that could not be gone on with.

    Raises:
        DataError: there is a file, and it is damaged or holds no tables.
    """
    if path is not None and Path(path).exists():
        read_tables(Path(path))


def _pair(contest: Contest) -> tuple[str, str] | None:
    """The fastest 8-bit candidate whose float graph is known, and the float one of its library."""
    open_ones = contest.candidates
    found = [
        name
        for name in contest.latencies
        if open_ones[name].spec.precision == "int8"
        and open_ones[name].spec.float_precision == FLOAT
        and _is_mixable(open_ones[name].fitted)
    ]
    for name in sorted(found, key=lambda name: contest.latencies[name].median_ms):
        floating = Spec(open_ones[name].spec.library, FLOAT).name
        if floating in open_ones:
            return name, floating
    return None


def _is_mixable(fitted: Fitted | None) -> bool:
    return fitted is not None and fitted.floats is not None and fitted.method != GIVEN_SCALES


class _Mixer:
    """One try, between a float and an 8-bit candidate of one library."""

    def __init__(self, job: Job, contest: Contest, data: Dataset, quantized: str, floating: str) -> None:
        self._job = job
        self._contest = contest
        self._data = data
        self._names = {"int8": quantized, FLOAT: floating}
        candidate = contest.candidates[quantized]
        if candidate.fitted is None or candidate.fitted.floats is None:
            raise InternalError("an 8-bit candidate has no quantized model")
        self._fitted = candidate.fitted
        self._floats = candidate.fitted.floats
        self._spec = replace(candidate.spec, is_mixed=True)
        self._sensitivity: Sensitivity | None = None
        self._best: tuple[float, Candidate] | None = None
        self._latencies_ms = self._brief_latencies(())

    def run(self) -> Mixed:
        """Try, and add the best candidate to the contest."""
        best_ms = self._contest.latencies[self._contest.choice.winner].median_ms
        tables = self._timed_tables()
        if len(tables.regions) < LEAST_REGIONS:
            return Mixed(None, {"reason": "not tried: there is one region to quantize", "rounds": []})
        path = self._job.config.assign.tables
        fastest = assign(tables, float("inf"))
        is_worth_it = fastest is not None and fastest.predicted_ms <= WORTH_RATIO * best_ms
        if is_worth_it or path is not None:
            tables = self._with_damages(tables)
        if is_worth_it:
            outcome = self._repair(tables, best_ms)
        else:
            predicted_ms = float("nan") if fastest is None else fastest.predicted_ms
            reason = (
                f"not tried: the fastest mix is predicted to take {predicted_ms:.3g} ms, "
                f"and {best_ms:.3g} ms are had inside the budget"
            )
            outcome = Outcome(tables, (), None, reason)
        if path is not None:
            write_tables(outcome.tables, Path(path))
        name = None
        if self._best is not None:
            name = self._spec.name
            self._contest.candidates[name] = self._best[1]
        return Mixed(name, mixed_report(outcome))

    def close(self) -> None:
        """Free the best engine so far."""
        if self._best is not None:
            self._best[1].executor.close()

    def _brief_latencies(self, more: Collection[tuple[str, Candidate]]) -> dict[str, float]:
        """Milliseconds of the two candidates and more ones, timed together.

        Each is its ratio to the float one within rounds, times what that took first.
        """
        bench = self._job.config.bench
        brief = replace(
            bench,
            duration_s=bench.duration_s * BRIEF_RATIO,
            max_duration_s=max(bench.max_duration_s * BRIEF_RATIO, bench.duration_s * BRIEF_RATIO),
        )
        runs = {name: self._contest.candidates[name] for name in self._names.values()} | dict(more)
        found = time_candidates(
            runs, self._contest.inputs, replace(self._job.config, bench=brief), lambda done, total: None
        )
        floating = found[self._names[FLOAT]]
        known = self._contest.latencies.get(self._names[FLOAT], floating)
        return {name: known.median_ms * compare_paired(row, floating).ratio for name, row in found.items()}

    def _timed_tables(self) -> Tables:
        """Regions with their times, and the two whole engines."""
        engines: dict[str, TimedEngine] = {}
        for done, (precision, name) in enumerate(self._names.items()):
            self._emit("timing regions", done, len(self._names), "candidates")
            engines[precision] = timed_engine(
                self._contest.candidates[name],
                self._job.model,
                self._contest.inputs,
                latency_ms=self._latencies_ms[name],
            )
        self._emit("timing regions", len(self._names), len(self._names), "candidates")
        layers = [layer.nodes for engine in engines.values() for layer in engine.layers]
        regions = find_regions(self._fitted.model.placement, layers)
        around = Surroundings(self._floats.graph, regions)
        ordered = {precision: engines[precision] for precision in (FLOAT, "int8")}
        return Tables(
            fingerprint=self._job.model.fingerprint,
            library=self._spec.library,
            metric=self._job.config.budget.metric,
            samples=self._job.config.assign.sensitivity_samples,
            regions=regions,
            costs=cost_model(regions, around, ordered),
            sizes=size_model(
                self._fitted.model,
                regions,
                float_bytes=self._contest.candidates[self._names[FLOAT]].model.size_bytes,
                precision="int8",
            ),
        )

    def _with_damages(self, tables: Tables) -> Tables:
        """With the two whole engines, and damages where the 8-bit one is outside the budget or for a file."""
        accuracy = self._contest.check(self._names["int8"])
        if accuracy is None:
            raise DataError("there are no data to measure accuracy on")
        tables = replace(tables, metric=accuracy.metric)
        is_inside = accuracy.drop_ratio <= self._job.config.budget.max_drop_ratio
        joint = None
        if not is_inside or self._job.config.assign.tables is not None:
            tables = self._measured(tables)
            joint = self.joint([region.name for region in tables.regions])
        float_ms, int8_ms = (self._latencies_ms[self._names[key]] for key in (FLOAT, "int8"))
        tables = tables.with_engine(BuiltEngine(uniform(tables, FLOAT), float_ms, 0.0, 0.0))
        return tables.with_engine(BuiltEngine(uniform(tables, "int8"), int8_ms, joint, accuracy.drop_ratio))

    def _measured(self, tables: Tables) -> Tables:
        """With the damage of every region, those of an earlier build among them."""
        path = self._job.config.assign.tables
        known: dict[str, float] = {}
        if path is not None and Path(path).exists():
            earlier = read_tables(Path(path))
            if earlier.fits(tables):
                known = {name: row["int8"] for name, row in earlier.damages.items() if "int8" in row}
            else:
                log.warning("the damages in '%s' are of another model or other regions: not used", path)
        total = len(tables.regions)

        def with_found(found: Mapping[str, float]) -> Tables:
            rows = {name: {FLOAT: 0.0, "int8": damage} for name, damage in found.items()}
            return replace(tables, damages=rows)

        def on_measured(found: Mapping[str, float]) -> None:
            self._emit("measuring damage", len(found), total, "regions")
            if path is not None and len(found) % SAVE_EVERY == 0:
                write_tables(with_found(found), Path(path))

        self._emit("measuring damage", len(known), total, "regions")
        return with_found(self._open_sensitivity(tables).measure(known, on_measured))

    def _open_sensitivity(self, tables: Tables) -> Sensitivity:
        if self._sensitivity is None:
            samples = self._job.config.assign.sensitivity_samples
            self._sensitivity = Sensitivity(self._fitted, tables.regions, self._data, samples=samples)
        return self._sensitivity

    def joint(self, names: Collection[str]) -> float:
        """Noise of the outputs with these regions quantized together."""
        if self._sensitivity is None:
            raise InternalError("joint noise is asked for, and damage was not measured")
        return self._sensitivity.joint(names)

    def build(self, assigned: Assigned) -> BuiltEngine:
        """Build the engine of an assignment and measure it; it is kept open while it is the best."""
        kept = {
            node: assigned.reasons[region.name]
            for region in self._regions
            for node in region.nodes
            if region.name in assigned.reasons
        }
        quantize = self._job.config.quantize
        fitted = keep_float(self._fitted, kept, quantize)
        self._check_constraints(fitted, kept)
        opened = Opener(self._job.model, self._job.config, self._contest.inputs).open(self._spec, fitted)
        if isinstance(opened, Rejected):
            raise ModelError(f"{self._spec.name} cannot be opened", got=opened.reason)
        name = self._spec.name
        latency_ms = self._brief_latencies([(name, opened)])[name]
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

    def _keep_best(self, opened: Candidate, latency_ms: float, drop: float) -> None:
        is_inside = drop <= self._job.config.budget.max_drop_ratio
        if is_inside and (self._best is None or latency_ms < self._best[0]):
            if self._best is not None:
                self._best[1].executor.close()
            self._best = (latency_ms, opened)
        else:
            opened.executor.close()

    def _check_constraints(self, fitted: Fitted, kept: Collection[str]) -> None:
        """What the user and the assignment keep float is float in what is built."""
        quantize = self._job.config.quantize
        names = {*kept, *excluded_nodes(self._floats.graph, quantize.exclude, quantize.exclude_types)}
        broken = [row.node for row in fitted.model.placement.decisions if row.is_int8 and row.node in names]
        if broken:
            raise InternalError(f"'{broken[0]}' shall stay float, and is 8-bit in the engine")

    def _realized(self, assigned: Assigned, fitted: Fitted) -> dict[str, str]:
        """What regions really are: some can only be 8-bit beside others."""
        int8 = {row.node for row in fitted.model.placement.decisions if row.is_int8}
        return {
            region.name: assigned.precisions[region.name] if int8 & set(region.nodes) else FLOAT
            for region in self._regions
        }

    def _repair(self, tables: Tables, best_ms: float) -> Outcome:
        config = self._job.config
        self._regions = tables.regions
        total = config.assign.assign_rounds
        self._emit("mixing precisions", 0, total, "rounds")
        done: list[Round] = []

        def on_round(one: Round) -> None:
            done.append(one)
            self._emit("mixing precisions", len(done), total, "rounds")
            log.info("%s", _round_text(len(done), one))

        return repair(
            tables,
            self,
            max_drop_ratio=config.budget.max_drop_ratio,
            best_ms=best_ms,
            most_rounds=total,
            on_round=on_round,
        )

    def _emit(self, stage: str, done: int, total: int, unit: str) -> None:
        self._job.emit(Event(stage, done, total, unit))


def _round_text(number: int, one: Round) -> str:
    engine = one.engine
    measured_ms = float("nan") if engine.latency_ms is None else engine.latency_ms
    drop = float("nan") if engine.drop_ratio is None else engine.drop_ratio
    return (
        f"mixed precision, round {number}: {engine.quantized_count} of {len(engine.assignment)} regions "
        f"in 8 bits, {measured_ms:.3g} ms ({one.assigned.predicted_ms:.3g} predicted), drop {drop:.4f}, "
        f"{'inside' if one.is_inside else 'outside'} the budget"
    )
