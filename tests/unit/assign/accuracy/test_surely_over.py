# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quantrt.assign.accuracy.surely_over import FIRST_LOOK, Looks, is_surely_over


def hits(rng: np.random.Generator, samples: int, lost_ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Of a float model that is right on 80 %, and of one that loses so much of it."""
    floats = (rng.random(samples) < 0.8).astype(np.float64)
    return floats, floats * (rng.random(samples) >= lost_ratio)


def test_looks_grow_with_the_samples():
    looks = Looks()
    due = [samples for samples in range(8, 2001, 8) if looks.is_due(samples)]
    assert due == [128, 192, 288, 432, 648, 976, 1464]
    assert due[0] == FIRST_LOOK


@pytest.mark.parametrize("samples", [128, 500])
def test_a_model_that_lost_a_fifth_is_surely_over_one_percent(samples: int, rng: np.random.Generator):
    assert is_surely_over(*hits(rng, samples, 0.2), 0.01)


def test_models_that_lose_the_budget_are_hardly_ever_called_over():
    """1,000 of them, with a look each: 4 standard errors are one in 30,000, and the tail of few hits more."""
    found = sum(is_surely_over(*hits(np.random.default_rng(seed), 432, 0.01), 0.01) for seed in range(1000))
    assert found == 0


def test_without_difference_nothing_is_over():
    floats = np.ones(200)
    assert not is_surely_over(floats, floats, 0.0)
    assert not is_surely_over(floats[:1], 0.0 * floats[:1], 0.5)  # one sample says nothing


def test_a_difference_without_spread_is_certain():
    assert is_surely_over(np.ones(200), np.zeros(200), 0.9)
