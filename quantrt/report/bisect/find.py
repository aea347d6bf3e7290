# SPDX-License-Identifier: Apache-2.0
"""The fewest nodes of a model that show its failure, each part fed with what the reference has there.

worst sample -> every tensor of the reference -> the first tensor that fails -> its ancestors -> the smallest
part of those that fails
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quantrt.calibrate.dataset import Dataset
from quantrt.config import CompareConfig
from quantrt.errors import DataError, ModelError
from quantrt.report.bisect.cut import Cut, ancestors, cut, made_by
from quantrt.report.bisect.side import Side
from quantrt.report.bisect.smallest import smallest
from quantrt.report.bisect.trials import CRASH, Crash, Failure, Trials, failure_in

__all__ = ["SAMPLES", "Found", "find_failure"]

SAMPLES = 64
"""Samples that are tried, one by one, for the one that fails worst."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Found:
    """A small part of the subject that fails, and the same of the reference.

    Attributes:
        failure: of the part.
        whole: of the whole model.
        is_swapped: the reference is what crashed: the parts have changed places.
        nodes: how many the whole model has.
    """

    reference: Cut
    subject: Cut
    feed: Arrays
    failure: Failure
    whole: Failure
    sample: int
    is_swapped: bool
    nodes: int


def find_failure(
    sides: tuple[Side, Side],
    dataset: Dataset,
    config: CompareConfig,
    trials: Trials,
    on_progress: Callable[[int, int | None], None],
) -> Found | None:
    """Bisect; None when no sample fails.

    Args:
        sides: reference and subject.

    Raises:
        ModelError: neither runs, or the failure is gone when the model runs in parts.
        DataError: there are no samples.
    """
    whole, feed, sample = _worst_sample(sides, dataset, config, trials)
    if whole is None:
        return None
    is_swapped = whole.kind == CRASH and whole.outputs == ()
    reference, subject = (sides[1], sides[0]) if is_swapped else sides
    runs = _Runs(trials, config, on_progress)
    search = _Search(reference, subject, feed, whole, runs)
    nodes = search.smallest()
    return search.found(nodes, sample, is_swapped=is_swapped)


def _worst_sample(
    sides: tuple[Side, Side], dataset: Dataset, config: CompareConfig, trials: Trials
) -> tuple[Failure | None, Arrays, int]:
    """The failure with the most noise, what was fed, and the number of the sample."""
    worst: Failure | None = None
    feed: Arrays = {}
    place = -1
    limit = min(SAMPLES, config.max_samples or SAMPLES)
    for batch in dataset.batches(1, limit):
        failure = _whole(sides, batch.inputs, config, trials)
        if place < 0:
            place, feed = batch.first_sample, batch.inputs
        if failure is not None and (worst is None or failure.noise_ratio > worst.noise_ratio):
            worst, feed, place = failure, batch.inputs, batch.first_sample
        if failure is not None and failure.noise_ratio == float("inf"):
            break
    if place < 0:
        raise DataError(f"cannot bisect on '{dataset.source}': it has no samples")
    return worst, feed, place


def _whole(sides: tuple[Side, Side], inputs: Arrays, config: CompareConfig, trials: Trials) -> Failure | None:
    """The failure of both models as wholes; a crash of the reference names no outputs."""
    results = []
    for side in sides:
        outputs = [value.name or "" for value in side.graph.graph.outputs]
        part = cut(side.graph, _names(side), inputs, outputs)
        results.append(Crash("nothing to run") if part is None else trials.run(side, part.model, inputs))
    a, b = results
    if isinstance(a, Crash):
        if isinstance(b, Crash):
            raise ModelError("neither model runs on these data", got=f"{a.text}; {b.text}")
        return Failure(CRASH, a.text, float("inf"))
    if isinstance(b, Crash):
        return Failure(CRASH, b.text, float("inf"), tuple(a))
    return failure_in(a, b, [name for name in a if name in b], config)


def _names(side: Side) -> list[str]:
    return [node.name or "" for node in side.graph.graph]


@dataclass(frozen=True)
class _Runs:
    """How parts are run and judged."""

    trials: Trials
    config: CompareConfig
    on_progress: Callable[[int, int | None], None]


class _Search:
    """One sample, one failure."""

    def __init__(
        self,
        reference: Side,
        subject: Side,
        feed: Arrays,
        whole: Failure,
        runs: _Runs,
    ) -> None:
        self._reference = reference
        self._subject = subject
        self._feed = feed
        self._whole = whole
        self._config = runs.config
        self._trials = runs.trials
        self._on_progress = runs.on_progress
        self._signature = Crash(whole.text).signature
        self._values = {**feed, **self._known_values()}
        self._end: str | None = None

    def smallest(self) -> list[str]:
        """Names of nodes that fail together and not with one less.

        Raises:
            ModelError: the whole does not fail when it runs as a part.
        """
        nodes = self._before_first_failure() or _names(self._subject)
        if self._failure(nodes) is None:
            self._end, nodes = None, _names(self._subject)
        if self._failure(nodes) is None:
            raise ModelError(
                "the failure is gone when the model runs by itself in a process of its own",
                got=self._whole.text,
                hint="`quantrt compare` without --bisect, again",
            )
        return smallest(nodes, lambda part: self._failure(part) is not None)

    def found(self, nodes: Sequence[str], sample: int, *, is_swapped: bool) -> Found:
        """The parts of both models for these nodes of the subject."""
        part, failure = self._part(nodes), self._failure(nodes)
        if part is None or failure is None:
            raise ModelError("the part that failed does not fail again", got=self._whole.text)
        graph = self._reference.graph
        given = {*part.inputs, *self._feed}
        outputs = [name for name in part.outputs if name in made_by(graph)]
        others = ancestors(graph, outputs, stop=given)
        values = {name: self._values[name] for name in given if name in self._values}
        twin = cut(graph, others, values, outputs)
        if twin is None:
            raise ModelError("the reference makes nothing that the failing part makes")
        inputs = dict.fromkeys((*part.inputs, *twin.inputs))
        feed = {name: self._values[name] for name in inputs}
        return Found(twin, part, feed, failure, self._whole, sample, is_swapped, len(_names(self._subject)))

    def _known_values(self) -> Arrays:
        """What the reference has wherever the subject has a tensor of that name."""
        mine = made_by(self._subject.graph)
        shared = [name for name in made_by(self._reference.graph) if name in mine]
        part = cut(self._reference.graph, _names(self._reference), self._feed, shared)
        found = None if part is None else self._trials.run(self._reference, part.model, self._feed)
        if found is None or isinstance(found, Crash):
            reason = "they have no tensor of one name inside" if found is None else found.text
            raise ModelError("cannot bisect: the reference cannot be looked into", got=reason)
        return found

    def _before_first_failure(self) -> list[str] | None:
        """The nodes before the first tensor that fails on the way to a failing output, that one included."""
        if self._whole.kind == CRASH:
            return None
        way = set(ancestors(self._subject.graph, self._whole.outputs))
        makers = made_by(self._subject.graph)
        names = [name for name in makers if name in self._values and makers[name].name in way]
        part = cut(self._subject.graph, _names(self._subject), self._feed, names)
        got = None if part is None else self._trials.run(self._subject, part.model, self._feed)
        if got is None or isinstance(got, Crash):
            return None
        for name in names:
            if failure_in(self._values, got, [name], self._config, self._whole.kind) is not None:
                self._end = name
                return ancestors(self._subject.graph, [name])
        return None

    def _part(self, nodes: Sequence[str]) -> Cut | None:
        part = cut(self._subject.graph, nodes, self._values)
        if part is None:
            return None
        maker = made_by(self._subject.graph).get(self._end or "")
        if maker is not None and maker.name in part.nodes:
            return cut(self._subject.graph, nodes, self._values, [self._end or ""])
        known = [name for name in part.outputs if name in self._values]
        if self._whole.kind == CRASH:
            return part if known else None
        return cut(self._subject.graph, nodes, self._values, known) if known else None

    def _failure(self, nodes: Sequence[str]) -> Failure | None:
        part = self._part(nodes)
        if part is None:
            return None
        got = self._trials.run(self._subject, part.model, self._values)
        self._on_progress(self._trials.count, None)
        if isinstance(got, Crash):
            same = self._whole.kind == CRASH and got.signature == self._signature
            return Failure(CRASH, got.text, float("inf"), part.outputs) if same else None
        if self._whole.kind == CRASH:
            return None
        return failure_in(self._values, got, part.outputs, self._config, self._whole.kind)
