# SPDX-License-Identifier: Apache-2.0
"""Which of the candidates that were timed is shipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.assign.choose import Choice, choose, choose_small
from quantrt.config import Budget
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.time_candidates import HALVES
from quantrt.tactics.timing import Latency

__all__ = ["choose_candidate"]

SMALL_RATIO = 0.9
"""Of FP32's bytes: weights in 4 bits that leave more are shipped for their speed alone, as all others are."""


def choose_candidate(
    candidates: Mapping[str, Candidate],
    latencies: Mapping[str, Latency],
    check: Callable[[str], Accuracy | None],
    budget: Budget,
    why_wrong: Callable[[str], str | None],
) -> Choice:
    """The fastest inside the budget that is surely faster than FP32; see `choose`.

    Where FP32 was left out, 16-bit floats are what others have to beat.

    Args:
        latencies: of the finalists.
        check, why_wrong: as in `choose`.
    """
    specs = {name: candidates[name].spec for name in latencies}
    floats = (
        "fp32" if any(spec.precision == "fp32" for spec in specs.values()) else _halves(latencies, candidates)
    )
    is_float = {name: spec.precision == floats for name, spec in specs.items()}
    codes = {name for name, spec in specs.items() if spec.has_codes or spec.precision == "int4"}
    choice = choose(
        latencies,
        is_float,
        check,
        budget.max_drop_ratio,
        codes=codes,
        coarse={name for name in codes if specs[name].precision == "fp8"},
        why_wrong=why_wrong,
        floats=floats,
    )
    bytes_of = {name: candidates[name].model.size_bytes for name in latencies}
    most = SMALL_RATIO * bytes_of[choice.baseline]
    small = [name for name, spec in specs.items() if spec.precision == "int4" and bytes_of[name] <= most]
    if small and why_wrong(small[0]) is None:
        return choose_small(choice, small[0], latencies, check, budget.max_drop_ratio)
    return choice


def _halves(latencies: Mapping[str, Latency], candidates: Mapping[str, Candidate]) -> str:
    """The precision of the fastest candidate in 16-bit floats."""
    halves = [name for name in latencies if candidates[name].spec.precision in HALVES]
    return candidates[min(halves, key=lambda name: latencies[name].median_ms)].spec.precision
