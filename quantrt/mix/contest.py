# SPDX-License-Identifier: Apache-2.0
"""The candidates of a build when precisions are to be mixed, and which two of them are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.assign.choose import Choice
from quantrt.assign.tables.noise_limit import allowed_ratio
from quantrt.tactics.candidates import Candidate, Opener, Spec
from quantrt.tactics.timing import Latency

__all__ = ["Check", "Contest", "Pair", "find_pair", "remembered"]

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
        opener: that opened them: on a GPU it remembers which kernels were timed.
        left: latencies of those that left the race on the way, of its first rounds.
    """

    candidates: dict[str, Candidate]
    latencies: Mapping[str, Latency]
    choice: Choice
    check: Check
    inputs: Mapping[str, np.ndarray]
    opener: Opener
    left: Mapping[str, Latency] = field(default_factory=dict)

    def with_others(self, before: Contest) -> Contest:
        """With the candidates of an earlier one that were not timed again, as they were then."""
        choice = self.choice
        return replace(
            self,
            latencies={**before.latencies, **self.latencies},
            choice=replace(choice, verdicts={**before.choice.verdicts, **choice.verdicts}),
        )


@dataclass(frozen=True)
class Pair:
    """Two candidates of one library between which precisions are mixed, by name.

    Attributes:
        precision: of the codes: "int8" or "fp8".
        codes, floats: everything that can be is in codes, or nothing.
    """

    precision: str
    codes: str
    floats: str


def find_pair(contest: Contest, max_drop_ratio: float) -> Pair | None:
    """The candidate with codes, of those whose float graph is known, that mixing is likeliest to start from.

    That is the fastest; and where none is inside the budget, the one whose mix is expected to be: were every
    region alike, as much of it would be in codes as the budget allows of its noise. So what is a little
    faster and much coarser does not keep out what is finer.
    """
    candidates, latencies = contest.candidates, contest.latencies
    pairs = [
        Pair(candidates[name].spec.precision, name, floats)
        for name in sorted(latencies, key=lambda name: latencies[name].median_ms)
        if (floats := _floats_beside(candidates[name].spec)) in candidates
        and (fitted := candidates[name].fitted) is not None
        and fitted.is_mixable
    ]
    if candidates[contest.choice.winner].spec.has_codes:
        return next(iter(pairs), None)
    return min(pairs, key=lambda pair: _expected_ms(contest, pair, max_drop_ratio), default=None)


def _expected_ms(contest: Contest, pair: Pair, max_drop_ratio: float) -> float:
    """Of a mix whose regions are alike; of codes whose floats were not timed to the end, of these alone."""
    accuracy = contest.choice.verdicts[pair.codes].accuracy
    codes_ms = contest.latencies[pair.codes].median_ms
    if accuracy is None or pair.floats not in contest.latencies:
        return codes_ms
    share = allowed_ratio(accuracy.metric, accuracy.drop_ratio, max_drop_ratio)
    floats_ms = contest.latencies[pair.floats].median_ms
    return floats_ms - share * (floats_ms - codes_ms)


def _floats_beside(spec: Spec) -> str | None:
    """The float candidate that computes in what the other layers of this one do."""
    if not spec.has_codes or spec.is_mixed:
        return None
    return Spec(spec.library, spec.float_precision, spec.float_precision).name


def remembered(check: Check, candidates: Mapping[str, Candidate]) -> Check:
    """The same, measuring every candidate once; another one under a known name is another candidate."""
    known: dict[int, tuple[object, Accuracy | None]] = {}  # executors are kept, so that ids stay theirs

    def once(name: str) -> Accuracy | None:
        executor = candidates[name].executor
        if id(executor) not in known:
            known[id(executor)] = (executor, check(name))
        return known[id(executor)][1]

    return once
