# SPDX-License-Identifier: Apache-2.0
"""Two contenders on the same samples: the difference of their figures, its standard error and interval.

What is drawn again, with replacement, are sources: pictures with all their views, sentence pairs, frames. So
views of one picture do not count as if they were different pictures (a cluster bootstrap, Davison and Hinkley
1997, section 3.8), and what is common to both contenders cancels: both figures are of the same draw. The
standard error is the standard deviation of the difference over the draws (Efron and Tibshirani 1993, section
6.2). The best of many peers is the best on these samples by chance too, which no interval here takes off.
"""

__all__ = ["Judged", "compare_agreement", "compare_score", "compare_sqnr", "mean_difference", "sqnr_db"]

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.tasks.task import Score

RESAMPLES = 2000
INTERVAL = (0.025, 0.975)
NO_NOISE_DB = 999.0

Array = npt.NDArray[Any]


class Judged:
    """One contender's figures.

    Attributes:
        row: JSON-ready.
        noise, signal: f64 [samples] power, by output.
        same: f64 [samples] how far its decisions agree with FP32's, or None.
        values: f64 [N] of the task's score, or None.
    """

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.noise: dict[str, Array] = {}
        self.signal: dict[str, Array] = {}
        self.same: Array | None = None
        self.values: Array | None = None


def sqnr_db(judged: Judged, name: str) -> float:
    """Signal over noise power of one output, over all samples."""
    return float(_decibels(judged.signal[name].sum(), judged.noise[name].sum()))


def compare_sqnr(ours: Judged, peers: dict[str, Judged], name: str, sources: Array) -> dict[str, Any]:
    """Our SQNR of output `name` minus the best peer's, dB."""
    best = max(peers, key=lambda peer: sqnr_db(peers[peer], name))
    parts = [
        np.bincount(sources, judged[name])
        for judged in (ours.signal, ours.noise, peers[best].signal, peers[best].noise)
    ]
    differences = []
    for rows in _draws(len(parts[0])):
        signal, noise, peer_signal, peer_noise = (part[rows].sum() for part in parts)
        differences.append(_decibels(signal, noise) - _decibels(peer_signal, peer_noise))
    here, there = sqnr_db(ours, name), sqnr_db(peers[best], name)
    return _comparison(f"SQNR {name} dB", best, here, there, np.array(differences))


def compare_agreement(ours: Judged, peers: dict[str, Judged], sources: Array) -> dict[str, Any] | None:
    """Our agreement with FP32 minus the best peer's; with the samples on which only one of the two agrees."""
    same = {name: judged.same for name, judged in peers.items() if judged.same is not None}
    if ours.same is None or not same:
        return None
    best = max(same, key=lambda peer: float(np.mean(same[peer])))
    gained, counts = np.bincount(sources, ours.same - same[best]), np.bincount(sources)
    differences = [gained[rows].sum() / counts[rows].sum() for rows in _draws(len(counts))]
    here, there = float(np.mean(ours.same)), float(np.mean(same[best]))
    return _comparison("agreement", best, here, there, np.array(differences)) | {
        "only_quantrt": int(np.sum(ours.same > same[best])),
        "only_peer": int(np.sum(ours.same < same[best])),
    }


def compare_score(ours: Judged, peers: dict[str, Judged], score: Score) -> dict[str, Any] | None:
    """Our score minus the best peer's."""
    values = {name: judged.values for name, judged in peers.items() if judged.values is not None}
    mine = ours.values
    if mine is None or not values:
        return None
    best = max(values, key=lambda peer: float(peers[peer].row["score"]))
    differences = [score.figure(mine, rows) - score.figure(values[best], rows) for rows in _draws(len(mine))]
    return _comparison(score.name, best, ours.row["score"], peers[best].row["score"], np.array(differences))


def mean_difference(
    ours: Sequence[Judged], theirs: Sequence[Judged], score: Score
) -> dict[str, float | None]:
    """Mean of our scores minus theirs over models made alike from other samples, with both errors of it.

    Returns:
        The error of the draws is None with fewer than two.
    """
    pairs = [
        (mine.values, peer.values)
        for mine, peer in zip(ours, theirs, strict=True)
        if mine.values is not None and peer.values is not None
    ]

    def differences(rows: Array) -> list[float]:
        return [score.figure(mine, rows) - score.figure(peer, rows) for mine, peer in pairs]

    count = len(pairs[0][0])
    found = differences(np.arange(count))
    means = [float(np.mean(differences(rows))) for rows in _draws(count)]
    return {
        "difference": float(np.mean(found)),
        "error_of_draws": float(np.std(found, ddof=1) / len(found) ** 0.5) if len(found) > 1 else None,
        "error_of_sources": float(np.std(means, ddof=1)),
    }


def _draws(count: int) -> Iterator[Array]:
    """Sources drawn with replacement, i64 [count], the same draws every time."""
    rng = np.random.default_rng(0)
    for _ in range(RESAMPLES):
        yield rng.integers(0, count, count)


def _decibels(signal: float, noise: float) -> float:
    return 10 * np.log10(signal / noise) if noise > 0 else NO_NOISE_DB


def _comparison(metric: str, peer: str, here: float, there: float, differences: Array) -> dict[str, Any]:
    lo, hi = (float(np.quantile(differences, q)) for q in INTERVAL)
    verdict = "better" if lo > 0 else "worse" if hi < 0 else "same"
    return {
        "metric": metric,
        "quantrt": here,
        "best_peer": peer,
        "peer": there,
        "difference": here - there,
        "standard_error": float(np.std(differences, ddof=1)),
        "lo": lo,
        "hi": hi,
        "verdict": verdict,
    }
