# SPDX-License-Identifier: Apache-2.0
"""The standard error that contenders of `benchmarks` are held apart by, beside what formulas say of it."""

import numpy as np
import pytest

from benchmarks.tasks.paired import Judged, compare_agreement, compare_sqnr, mean_difference
from benchmarks.tasks.task import Score

COUNT = 4000
DRAWN = 0.07
"""How far 2000 draws may be off: their standard deviation is known to 1 / sqrt(4000), four times that."""


def judged(same: np.ndarray, noise: np.ndarray | None = None) -> Judged:
    made = Judged({})
    made.same = same.astype(float)
    if noise is not None:
        made.noise, made.signal = {"y": noise}, {"y": np.ones(len(noise))}
    return made


def agreement(ours: np.ndarray, theirs: np.ndarray, sources: np.ndarray) -> float:
    found = compare_agreement(judged(ours), {"peer": judged(theirs)}, sources)
    assert found is not None
    assert found["difference"] == pytest.approx(np.mean(ours) - np.mean(theirs))
    return float(found["standard_error"])


def test_the_error_is_that_of_differences_within_pairs():
    """sd(a - b) / sqrt(n): what both agree on says nothing, however often that is."""
    rng = np.random.default_rng(1)
    theirs = rng.random(COUNT) < 0.9
    ours = theirs ^ (rng.random(COUNT) < 0.02)
    wanted = np.std(ours.astype(float) - theirs) / COUNT**0.5
    apart = (np.var(ours) / COUNT + np.var(theirs) / COUNT) ** 0.5
    error = agreement(ours, theirs, np.arange(COUNT))
    assert error == pytest.approx(wanted, rel=DRAWN) and error < apart / 2


def test_views_of_one_picture_count_once():
    rng = np.random.default_rng(2)
    theirs = rng.random(COUNT) < 0.9
    ours = rng.random(COUNT) < 0.92
    once = agreement(ours, theirs, np.arange(COUNT))
    twice = agreement(np.tile(ours, 2), np.tile(theirs, 2), np.tile(np.arange(COUNT), 2))
    assert twice == pytest.approx(once, rel=1e-9)


def test_of_decibels_it_is_the_error_of_the_ratio_of_two_noises():
    """d of 10 log10(sum b / sum a) is 10 / ln 10 (b / mean b - a / mean a), averaged over samples."""
    rng = np.random.default_rng(3)
    common = rng.exponential(size=COUNT)
    a, b = common * rng.uniform(0.5, 1.5, COUNT), 2 * common * rng.uniform(0.5, 1.5, COUNT)
    same = np.ones(COUNT)
    found = compare_sqnr(judged(same, a), {"peer": judged(same, b)}, "y", np.arange(COUNT))
    assert found["difference"] == pytest.approx(10 * np.log10(b.sum() / a.sum()))
    wanted = 10 / np.log(10) * np.std(b / b.mean() - a / a.mean()) / COUNT**0.5
    assert found["standard_error"] == pytest.approx(wanted, rel=DRAWN)


def test_the_mean_difference_over_models_has_the_errors_of_both_draws():
    """Three models that differ from the peer by 1, 2 and 3 points, and by what each source brings to all."""
    rng = np.random.default_rng(4)
    common, spread = rng.random(COUNT), rng.standard_normal(COUNT)
    score = Score("mean", lambda outputs: outputs[0], lambda values, rows: float(np.mean(values[rows])))

    def scored(values: np.ndarray) -> Judged:
        made = Judged({})
        made.values = values
        return made

    ours = [scored(common + spread + points) for points in (0.01, 0.02, 0.03)]
    found = mean_difference(ours, [scored(common)] * 3, score)
    assert found["difference"] == pytest.approx(0.02 + spread.mean())
    assert found["error_of_draws"] == pytest.approx(0.01 / 3**0.5)
    assert found["error_of_sources"] == pytest.approx(np.std(spread) / COUNT**0.5, rel=DRAWN)
    alone = mean_difference(ours[:1], [scored(common)], score)
    assert alone["error_of_draws"] is None
