# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from quantrt.assign.tables.noise_limit import NoisePoint, allowed_ratio, noise_limit, predicted_drop


def test_without_an_engine_outside_the_budget_there_is_no_limit():
    assert noise_limit([NoisePoint(0.1, 0.002), NoisePoint(0.0, 0.0)], "top1", 0.01) == math.inf


def test_the_first_guess_follows_the_law_of_the_metric():
    points = [NoisePoint(0.04, 0.02)]
    assert noise_limit(points, "sqnr", 0.01) == pytest.approx(0.8 * 0.02)
    assert noise_limit(points, "top1", 0.01) == pytest.approx(0.8 * 0.01)


def test_the_next_guess_lies_between_what_was_inside_and_what_was_outside():
    points = [NoisePoint(0.04, 0.9), NoisePoint(0.001, 0.002)]
    assert 0.001 < noise_limit(points, "top1", 0.01) < 0.04


def test_guesses_close_in_however_wrong_the_law_is():
    points = [NoisePoint(1.0, 5.0)]
    for _ in range(12):
        limit = noise_limit(points, "top1", 0.01)
        assert limit < min(p.noise_ratio for p in points if p.drop_ratio > 0.01)
        points.append(NoisePoint(limit, 0.02 if limit > 1e-4 else 0.001))
    inside = [p.noise_ratio for p in points if p.drop_ratio <= 0.01]
    assert max(inside) > 1e-5


def test_an_engine_inside_the_budget_says_how_much_room_is_left():
    points = [NoisePoint(0.0, 0.0), NoisePoint(0.18, 0.068), NoisePoint(0.0032, 0.0048)]
    assert noise_limit(points, "top1", 0.01) == pytest.approx(0.8 * 0.0032 * (0.01 / 0.0048) ** 2)
    used_up = [*points, NoisePoint(0.01, 0.0095)]
    assert noise_limit(used_up, "top1", 0.01) == pytest.approx(0.01)


def test_where_nothing_was_lost_there_is_room():
    """The law from far outside is too careful here: what is allowed is found by halving."""
    points = [NoisePoint(1.3, 0.54)]
    for _ in range(4):
        limit = noise_limit(points, "top1", 0.01)
        points.append(NoisePoint(limit, 0.3 if limit > 2e-2 else 0.0))
    inside = [p.noise_ratio for p in points if p.drop_ratio <= 0.01]
    assert inside[0] == pytest.approx(0.8 * 1.3 * (0.01 / 0.54) ** 2)
    assert 5e-3 < max(inside) <= 2e-2


def test_a_budget_of_nothing_allows_nothing():
    assert noise_limit([NoisePoint(0.0, 0.0), NoisePoint(0.1, 0.2)], "top1", 0.0) == 0.0


@pytest.mark.parametrize("drop", [math.inf, math.nan])
def test_broken_outputs_ask_for_much_less_noise(drop):
    assert 0.0 < noise_limit([NoisePoint(2.0, drop)], "top1", 0.01) <= 0.02
    assert 0.0 < noise_limit([NoisePoint(math.nan, drop)], "top1", 0.01) <= 0.01


def test_a_drop_is_predicted_by_the_law_through_the_engines_that_lost_anything():
    points = [NoisePoint(0.0, 0.0), NoisePoint(0.01, 0.02), NoisePoint(0.04, 0.05), NoisePoint(1.0, 0.2)]
    assert predicted_drop(points, "top1", 0.0025) == pytest.approx(0.2 * 0.05)
    assert predicted_drop(points[:2], "sqnr", 0.005) == pytest.approx(0.01)
    assert math.isnan(predicted_drop([NoisePoint(0.1, 0.0)], "top1", 0.1))


@pytest.mark.parametrize(
    ("metric", "drop", "ratio"),
    [
        ("sqnr", 0.02, 0.5),
        ("top1", 0.02, 0.25),
        ("sqnr", 0.005, 1.0),
        ("sqnr", math.inf, 0.0),
        ("top1", math.nan, 0.0),
    ],
)
def test_of_the_noise_of_an_engine_a_budget_allows(metric: str, drop: float, ratio: float):
    assert allowed_ratio(metric, drop, 0.01) == pytest.approx(ratio)
