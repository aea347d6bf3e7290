# SPDX-License-Identifier: Apache-2.0
"""How much noise in the outputs a budget on the user's metric allows, learned from measured engines.

    drop ~ noise               of metrics that are noise themselves: sqnr, cosine
    drop ~ sqrt(noise)         of others: answers change where the noise's amplitude is beyond their margin

The law only leads from one measured point to the next guess; what is known for certain, that an engine was
inside the budget or outside, bounds it from both sides.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["NoisePoint", "allowed_ratio", "closest_limit", "next_limit", "noise_limit", "predicted_drop"]

NOISE_METRICS = ("sqnr", "cosine")

MARGIN_RATIO = 0.8
"""Of the noise that would use up the budget: the law is rough, and a round costs a build."""

CLOSEST_RATIO = 0.9
"""Of the least noise that was outside the budget: nearer to it nothing is tried."""

STEP_RATIO = 0.3
"""Of the noise of the last model, what is tried next while none is inside the budget: 5 dB. Noise that all
regions share stays when some become floats, and a law through it would go on a little at a time."""

BROKEN_RATIO = 1e-2
"""Of the noise of an engine whose outputs are not finite, or wholly wrong: there the law says nothing."""


@dataclass(frozen=True)
class NoisePoint:
    """An engine whose accuracy was measured.

    Attributes:
        noise_ratio: of its outputs, as the damage table predicts or measures it.
        drop_ratio: of the metric; infinite where outputs are not finite.
    """

    noise_ratio: float
    drop_ratio: float


def noise_limit(points: Sequence[NoisePoint], metric: str, max_drop_ratio: float) -> float:
    """The noise to try next; infinite where everything measured so far was inside the budget.

    Args:
        points: at least one, of any order.
        metric: its name.
    """
    if all(point.drop_ratio <= max_drop_ratio for point in points):
        return math.inf
    least_outside = _least_outside(points, max_drop_ratio)
    inside = [p for p in points if p.drop_ratio <= max_drop_ratio and 0.0 < p.noise_ratio < least_outside]
    guess = MARGIN_RATIO * _along_law(_nearest(points, max_drop_ratio), metric, max_drop_ratio)
    if not inside:
        return min(guess, closest_limit(points, max_drop_ratio))
    most_inside = max(inside, key=lambda point: point.noise_ratio)
    # The law may be too careful from far outside; what is inside and lost nothing says that there is room.
    near = MARGIN_RATIO * _along_law(most_inside, metric, max_drop_ratio)
    # Between the two that are known for certain; no further than halfway, in decibels.
    halfway = math.sqrt(most_inside.noise_ratio * least_outside)
    return min(max(guess, near, most_inside.noise_ratio), halfway)


def closest_limit(points: Sequence[NoisePoint], max_drop_ratio: float) -> float:
    """The most noise that may be tried: nearly the least that was outside the budget; something was."""
    return CLOSEST_RATIO * _least_outside(points, max_drop_ratio)


def next_limit(
    points: Sequence[NoisePoint],
    metric: str,
    max_drop_ratio: float,
    last_noise_ratio: float | None,
    *,
    is_one_inside: bool,
) -> float:
    """The noise to try in the next round of mixed models.

    Args:
        last_noise_ratio: of the last round's; None before the first, or where it is not known.
        is_one_inside: whether one of these rounds was inside the budget.
    """
    limit = noise_limit(points, metric, max_drop_ratio)
    if last_noise_ratio is None or is_one_inside:
        return limit
    return min(limit, STEP_RATIO * last_noise_ratio)


def _least_outside(points: Sequence[NoisePoint], max_drop_ratio: float) -> float:
    outside = [point.noise_ratio for point in points if not point.drop_ratio <= max_drop_ratio]
    # What is not finite is as much noise as signal, at least.
    return min((noise for noise in outside if math.isfinite(noise)), default=1.0)


def _nearest(points: Sequence[NoisePoint], max_drop_ratio: float) -> NoisePoint:
    """The point whose drop is nearest to the budget; of those that lost everything the last."""

    def distance(point: NoisePoint) -> float:
        if not 0.0 < point.drop_ratio < math.inf or not 0.0 < point.noise_ratio < math.inf:
            return math.inf
        return abs(math.log(point.drop_ratio / max_drop_ratio)) if max_drop_ratio else point.drop_ratio

    lost = [point for point in points if not point.drop_ratio <= 0.0]
    return min(reversed(lost), key=distance)


def allowed_ratio(metric: str, drop_ratio: float, max_drop_ratio: float) -> float:
    """How much of an engine's noise a budget allows, by the law: 1 for all, 0 where outputs are broken."""
    if drop_ratio <= max_drop_ratio:
        return 1.0
    if not math.isfinite(drop_ratio):
        return 0.0
    return math.pow(max(max_drop_ratio, 0.0) / drop_ratio, 1.0 / _power(metric))


def predicted_drop(points: Sequence[NoisePoint], metric: str, noise_ratio: float) -> float:
    """The drop at some noise, by the law through the measured points that lost anything; NaN without any."""
    known = [point for point in points if 0.0 < point.drop_ratio < math.inf and point.noise_ratio > 0.0]
    if not known:
        return math.nan
    power = _power(metric)
    factors = [point.drop_ratio / math.pow(point.noise_ratio, power) for point in known]
    return statistics.median(factors) * math.pow(noise_ratio, power)


def _along_law(point: NoisePoint, metric: str, max_drop_ratio: float) -> float:
    if point.drop_ratio <= 0.0:
        return math.inf
    if not math.isfinite(point.drop_ratio) or not math.isfinite(point.noise_ratio):
        return BROKEN_RATIO * (point.noise_ratio if math.isfinite(point.noise_ratio) else 1.0)
    return point.noise_ratio * math.pow(max_drop_ratio / point.drop_ratio, 1.0 / _power(metric))


def _power(metric: str) -> float:
    return 1.0 if metric in NOISE_METRICS else 0.5
