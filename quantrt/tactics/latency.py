# SPDX-License-Identifier: Apache-2.0
"""Timed runs of one candidate, and how two that were timed in the same rounds compare."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quantrt.errors import UsageError

__all__ = ["CONFIDENCE_RATIO", "EQUAL_RATIO", "Latency", "Paired", "compare_paired"]

CONFIDENCE_RATIO = 0.99
"""Of the interval around a ratio; high because the interval is looked at several times while measuring."""

EQUAL_RATIO = 0.01
"""Two candidates whose interval lies within 1 +- this are as fast as each other: no more runs are spent."""


@dataclass(frozen=True)
class Latency:
    """Timed runs of one candidate.

    Attributes:
        samples_ms: in the order they ran.
        turn_runs: consecutive samples that belong to one round.
    """

    samples_ms: tuple[float, ...]
    turn_runs: int = 1

    @property
    def median_ms(self) -> float:
        """The middle sample."""
        return self.p(0.5)

    @property
    def mean_ms(self) -> float:
        """The arithmetic mean."""
        return math.fsum(self.samples_ms) / len(self.samples_ms)

    @property
    def min_ms(self) -> float:
        """The fastest run."""
        return min(self.samples_ms)

    @property
    def max_ms(self) -> float:
        """The slowest run."""
        return max(self.samples_ms)

    @property
    def total_ms(self) -> float:
        """All runs together."""
        return math.fsum(self.samples_ms)

    def figures(self, *percents: int) -> dict[str, float]:
        """What reports tell of it, by name: median, mean, the fastest, the slowest, and percentiles."""
        return {
            "median_ms": self.median_ms,
            "mean_ms": self.mean_ms,
            "min_ms": self.min_ms,
            "max_ms": self.max_ms,
            **{f"p{percent}_ms": self.p(percent / 100) for percent in percents},
        }

    @property
    def cv_ratio(self) -> float:
        """Standard deviation over mean."""
        return float(np.std(self.samples_ms)) / self.mean_ms if self.mean_ms else 0.0

    def p(self, q: float) -> float:
        """The quantile q in [0, 1], linear between samples."""
        return float(np.quantile(self.samples_ms, q))

    def divided_by(self, runs: int) -> Latency:
        """The time per run where every sample was `runs` of them."""
        return Latency(tuple(sample_ms / runs for sample_ms in self.samples_ms), self.turn_runs)

    @property
    def rounds(self) -> int:
        """How many there were, each of as many runs."""
        return len(self.samples_ms) // self.turn_runs

    def first(self, rounds: int) -> Latency:
        """The first rounds alone."""
        return Latency(self.samples_ms[: rounds * self.turn_runs], self.turn_runs)

    def round_medians_ms(self) -> np.ndarray:
        """The median of each round, f64 [rounds]."""
        samples = np.array(self.first(self.rounds).samples_ms)
        medians: np.ndarray = np.median(samples.reshape(self.rounds, self.turn_runs), axis=1)
        return medians


@dataclass(frozen=True)
class Paired:
    """How a compares with b, round by round.

    Attributes:
        ratio: median of a's time over b's.
        lo, hi: its confidence interval, at CONFIDENCE_RATIO unless said otherwise; 0 and infinity when there
            are too few rounds.
        rounds: number of pairs.
    """

    ratio: float
    lo: float
    hi: float
    rounds: int

    @property
    def verdict(self) -> str:
        """Of a: "faster" or "slower" when the whole interval is on that side of 1, else "same"."""
        if self.hi < 1.0:
            return "faster"
        return "slower" if self.lo > 1.0 else "same"

    @property
    def is_decided(self) -> bool:
        """Whether more rounds would tell little: different for certain, or equal within EQUAL_RATIO."""
        return self.verdict != "same" or (self.lo >= 1.0 - EQUAL_RATIO and self.hi <= 1.0 + EQUAL_RATIO)


def compare_paired(a: Latency, b: Latency, *, confidence: float = CONFIDENCE_RATIO) -> Paired:
    """Compare two candidates timed by the same `time_interleaved`.

    The interval is between order statistics of the ratios, from the binomial distribution of how many lie
    below the true median (the sign test inverted), so it assumes nothing about how latencies are distributed.

    Raises:
        UsageError: the two were not timed in the same rounds.
    """
    times_a, times_b = a.round_medians_ms(), b.round_medians_ms()
    if len(times_a) != len(times_b) or not len(times_a):
        raise UsageError(
            "cannot compare latencies that were not timed together",
            got=f"{len(times_a)} and {len(times_b)} rounds",
        )
    ratios = np.sort(times_a / np.maximum(times_b, 1e-9))
    count = len(ratios)
    outside = _ranks_outside(count, confidence)
    lo, hi = (float(ratios[outside - 1]), float(ratios[count - outside])) if outside else (0.0, math.inf)
    return Paired(float(np.median(ratios)), lo, hi, count)


def _ranks_outside(count: int, confidence: float) -> int:
    """The largest k for which the k-th smallest and k-th largest of `count` values enclose the median.

    With probability `confidence`, that is: 2 P(Binomial(count, 1/2) < k) <= 1 - confidence. 0 when none does.
    """
    bound = (1.0 - confidence) / 2.0
    log_half = count * math.log(0.5)
    below, k = 0.0, 0
    while k < count:
        log_ways = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        below += math.exp(log_ways + log_half)
        if below > bound:
            return k
        k += 1
    return k
