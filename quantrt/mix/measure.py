# SPDX-License-Identifier: Apache-2.0
"""What a mix is decided by: times of regions in both engines, their damages, and what they do together."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from quantrt.assign.assignment.assignment import uniform
from quantrt.assign.tables.cost_model import CostModel, TimedEngine, cost_model
from quantrt.assign.tables.region import FLOAT, Region, Surroundings, find_regions
from quantrt.assign.tables.sensitivity import Sensitivity
from quantrt.assign.tables.sizes import size_model
from quantrt.assign.tables.tables import BuiltEngine, Tables, read_tables, write_tables
from quantrt.calibrate.dataset import Dataset
from quantrt.errors import DataError, InternalError
from quantrt.mix.contest import Contest, Pair
from quantrt.prepare import Event, Job
from quantrt.quantize.fit.fit import Fitted
from quantrt.report.engine_layers.timed import SESSIONS, candidate_plan, timed_engine
from quantrt.report.engine_layers.watched import WatchedLayers
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.time_candidates import time_candidates
from quantrt.tactics.timing import Latency, compare_paired

__all__ = ["Measurer", "check_tables", "not_float_for_time"]

log = logging.getLogger(__name__)

BRIEF_RATIO = 0.25
"""Part of the timed seconds that an engine of one round gets; the best of them gets all of them later, and is
told from others then."""

SAVE_EVERY = 4
"""Regions after which the tables are written."""

GPU_NS_PER_ELEMENT = 1e-3
"""Of a change between codes and floats, which kernels on a GPU do in what they store and read: two bytes more
at 2 TB/s."""

GPU_MOST_NS_PER_ELEMENT = 4e-3
"""Of such a change where it is a kernel of its own, which reads and writes all of them, at 1 TB/s. Four mixed
engines of a BERT-large were 6 % slower than predicted with 1 to 5 of 97 regions float: the GPU was hotter."""

TABLES = ("Gather",)
"""Operators of regions that are in codes for the size of the file."""

FLOAT_TABLE_RATIO = 0.01
"""Of what rows in codes take, by which picking them in floats counts as longer at least: a table takes as
long either way, to within what timings tell apart, and four times the space."""


def check_tables(path: str | None) -> None:
    """Nothing is measured for a file that could not be gone on with.

    Raises:
        DataError: there is a file, and it is damaged or holds no tables.
    """
    if path is not None and Path(path).exists():
        read_tables(Path(path))


class Measurer:
    """Measures for one pair of candidates.

    Args:
        data: samples that damage is measured on.
        fitted: behind the candidate with codes; its float graph is kept.

    Attributes:
        watched: candidates whose layers a library of the CPU was watched running, by name.
    """

    def __init__(self, job: Job, contest: Contest, data: Dataset, pair: Pair, fitted: Fitted) -> None:
        self._job = job
        self._contest = contest
        self._data = data
        self._pair = pair
        self._fitted = fitted
        self._names = {pair.precision: pair.codes, FLOAT: pair.floats}
        self._sensitivity: Sensitivity | None = None
        self.watched: dict[str, WatchedLayers] = {}

    @property
    def best_ms(self) -> float:
        """Of what would be shipped so far, by the rounds that it shares with the two candidates."""
        return self._beside_yardstick(self._contest.latencies)[self._contest.choice.winner]

    @property
    def codes_ms(self) -> float:
        """Of all in codes, by the same rounds."""
        return self._beside_yardstick(self._contest.latencies)[self._pair.codes]

    @cached_property
    def _latencies_ms(self) -> dict[str, float]:
        """Of the two candidates, as they were timed together before, as long as both were."""
        known, floats = self._contest.latencies, self._pair.floats
        if all(name in known for name in self._names.values()):
            return self._beside_yardstick({name: known[name] for name in self._names.values()})
        if self._pair.codes not in known or floats not in self._contest.left:
            return self.brief_latencies({})
        codes, left = known[self._pair.codes], self._contest.left[floats]
        ratio = compare_paired(left, codes.first(left.rounds)).ratio
        return {self._pair.codes: codes.median_ms, floats: codes.median_ms * ratio}

    def brief_latencies(self, more: Mapping[str, Candidate]) -> dict[str, float]:
        """Milliseconds of the two candidates and more ones, timed together."""
        bench = self._job.config.bench
        brief_s = bench.duration_s * BRIEF_RATIO
        brief = replace(bench, duration_s=brief_s, max_duration_s=brief_s)
        runs = {name: self._contest.candidates[name] for name in self._names.values()} | dict(more)
        config = replace(self._job.config, bench=brief)
        return self._beside_yardstick(
            time_candidates(runs, self._contest.inputs, config, lambda done, total: None, staying=runs)
        )

    def _beside_yardstick(self, found: Mapping[str, Latency]) -> dict[str, float]:
        """Milliseconds: of each its ratio within rounds to one of the two, times what that took first."""
        known = self._contest.latencies
        yardstick = self._pair.floats if self._pair.floats in known else self._pair.codes
        return {
            name: known[yardstick].median_ms * compare_paired(row, found[yardstick]).ratio
            for name, row in found.items()
        }

    def timed_tables(self, sessions: int = SESSIONS, *, anew: bool = False) -> Tables:
        """Regions with their times and sizes.

        Args:
            sessions: of watching a library of the CPU, with those of before: a first one alone tells whether
                more are worth it.
            anew: without those of before, so that what was chosen by them can be judged.
        """
        engines: dict[str, TimedEngine] = {}
        for done, (precision, name) in enumerate(self._names.items()):
            self._emit("timing regions", done, len(self._names), "candidates")
            watched = self._watched(name)
            used = watched.anew() if anew else watched
            engines[precision] = timed_engine(
                self._contest.candidates[name],
                self._job.model,
                self._contest.inputs,
                latency_ms=self._latencies_ms[name],
                sessions=sessions,
                watched=used,
            )
            if anew:
                watched.sessions += used.sessions
        self._emit("timing regions", len(self._names), len(self._names), "candidates")
        layers = [layer.nodes for engine in engines.values() for layer in engine.layers]
        regions = find_regions(self._fitted.model.placement, layers)
        around = Surroundings(self._floats, regions)
        ordered = {precision: engines[precision] for precision in (FLOAT, self._pair.precision)}
        floats, codes = (self._contest.candidates[name] for name in (self._pair.floats, self._pair.codes))
        library = codes.spec.library
        gpu = {
            "unseen_ns_per_element": GPU_NS_PER_ELEMENT,
            "most_ns_per_element": GPU_MOST_NS_PER_ELEMENT,
        }
        rates = gpu if library == "cuda" else {}
        return Tables(
            fingerprint=self._job.model.fingerprint,
            library=library,
            codes=self._fitted.model.digest,
            metric=self._job.config.budget.metric_name,
            samples=self._job.config.assign.sensitivity_samples,
            regions=regions,
            costs=not_float_for_time(cost_model(regions, around, ordered, **rates), regions),
            sizes=size_model(
                self._fitted.model,
                regions,
                float_bytes=floats.model.size_bytes,
                codes_bytes=codes.model.size_bytes,
                # a CPU's file keeps FP32, whatever the library computes in
                float_precision=codes.spec.float_precision if library == "cuda" else "fp32",
            ),
        )

    def _watched(self, name: str) -> WatchedLayers:
        """That candidate, with all that it was watched for."""
        if name not in self.watched:
            candidate = self._contest.candidates[name]
            plan = candidate_plan(candidate, self._job.model)
            self.watched[name] = WatchedLayers(plan, self._contest.inputs, beside=candidate.executor)
        return self.watched[name]

    def with_damages(self, tables: Tables) -> Tables:
        """With the two whole engines, and damages where that of codes is outside the budget or for a file."""
        accuracy = self._contest.check(self._pair.codes)
        if accuracy is None:
            raise DataError(
                "there are no data to measure accuracy on", hint="--calib-data P or --valid-data P"
            )
        tables = replace(tables, metric=accuracy.metric)
        is_inside = accuracy.drop_ratio <= self._job.config.budget.max_drop_ratio
        joint = None
        if not is_inside or self._job.config.assign.tables is not None:
            tables = self._measured(tables)
            joint = self.joint([region.name for region in tables.regions])
        float_ms, codes_ms = (self._latencies_ms[name] for name in (self._pair.floats, self._pair.codes))
        tables = tables.with_engine(BuiltEngine(uniform(tables, FLOAT), float_ms, 0.0, 0.0))
        codes = uniform(tables, self._pair.precision)
        return tables.with_engine(BuiltEngine(codes, codes_ms, joint, accuracy.drop_ratio))

    def joint(self, names: Collection[str]) -> float:
        """Noise of the outputs with these regions quantized together."""
        if self._sensitivity is None:
            raise InternalError("joint noise is asked for, and damage was not measured")
        return self._sensitivity.joint(names)

    @property
    def _floats(self) -> ir.Graph:
        if self._fitted.floats is None:
            raise InternalError("a candidate with codes has no float graph")
        return self._fitted.floats.graph

    def _measured(self, tables: Tables) -> Tables:
        """With the damage of every region, those of an earlier build among them."""
        path, codes = self._job.config.assign.tables, self._pair.precision
        known: dict[str, float] = {}
        if path is not None and Path(path).exists():
            earlier = read_tables(Path(path))
            if earlier.fits(tables):
                known = {name: row[codes] for name, row in earlier.damages.items() if codes in row}
            else:
                log.warning(
                    "the damages in '%s' are of another model, other ranges or other regions: not used", path
                )
        total = len(tables.regions)

        def with_found(found: Mapping[str, float]) -> Tables:
            rows = {name: {FLOAT: 0.0, codes: damage} for name, damage in found.items()}
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

    def _emit(self, stage: str, done: int, total: int, unit: str) -> None:
        self._job.emit(Event(stage, done, total, unit))


def not_float_for_time(costs: CostModel, regions: Sequence[Region]) -> CostModel:
    """The times, with an embedding table in floats never the faster: damage alone makes it float."""
    times_ms = dict(costs.times_ms)
    for region in regions:
        if all(op_type in TABLES for op_type in region.op_types):
            row = times_ms[region.name]
            codes_ms = max(time_ms for precision, time_ms in row.items() if precision != FLOAT)
            least_ms = codes_ms + FLOAT_TABLE_RATIO * abs(codes_ms)
            times_ms[region.name] = {**row, FLOAT: max(row[FLOAT], least_ms)}
    return replace(costs, times_ms=times_ms)
