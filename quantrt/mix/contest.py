# SPDX-License-Identifier: Apache-2.0
"""The candidates of a build when precisions are to be mixed, and which two of them are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from quantrt.assign.accuracy import Accuracy
from quantrt.assign.choose import Choice
from quantrt.quantize.fit import GIVEN_SCALES, OWN_SCALES, Fitted
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
    """

    candidates: dict[str, Candidate]
    latencies: Mapping[str, Latency]
    choice: Choice
    check: Check
    inputs: Mapping[str, np.ndarray]
    opener: Opener


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


def find_pair(contest: Contest) -> Pair | None:
    """The fastest candidate with codes whose float graph is known, and the float one beside it."""
    candidates = contest.candidates
    for name in sorted(contest.latencies, key=lambda name: contest.latencies[name].median_ms):
        spec = candidates[name].spec
        floats = _floats_beside(spec)
        if floats in candidates and _is_mixable(candidates[name].fitted):
            return Pair(spec.precision, name, floats)
    return None


def _floats_beside(spec: Spec) -> str | None:
    """The float candidate that computes in what the other layers of this one do.

    On a CPU bf16 beside int8 is left out: its rounding is no noise of a region.
    """
    if not spec.has_codes or spec.is_mixed:
        return None
    if spec.library == "cuda":
        return Spec(spec.library, spec.float_precision, spec.float_precision).name
    return Spec(spec.library, "fp32").name if spec.float_precision == "fp32" else None


def _is_mixable(fitted: Fitted | None) -> bool:
    return (
        fitted is not None and fitted.floats is not None and fitted.method not in (GIVEN_SCALES, OWN_SCALES)
    )


def remembered(check: Check, candidates: Mapping[str, Candidate]) -> Check:
    """The same, measuring every candidate once; another one under a known name is another candidate."""
    known: dict[int, tuple[object, Accuracy | None]] = {}  # executors are kept, so that ids stay theirs

    def once(name: str) -> Accuracy | None:
        executor = candidates[name].executor
        if id(executor) not in known:
            known[id(executor)] = (executor, check(name))
        return known[id(executor)][1]

    return once
