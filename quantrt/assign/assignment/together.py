# SPDX-License-Identifier: Apache-2.0
"""A choice of regions that make no more noise together than is allowed.

Damages add up where roundings are independent. Where regions make more noise together than apart, that group
is found, and counts for more from then on; then it is chosen again. Where they make less, as regions do that
share a rounding, there is room for more of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from quantrt.assign.assignment.culprits import excess_ratio, find_culprits, raised

__all__ = ["Chosen", "Together", "choose_together"]

NOT_ADDITIVE_RATIO = 1.5
"""Noise of regions together over the sum of their damages, from which on somebody is to blame: 1.8 dB."""

ROOM_RATIO = 0.8
"""Of the limit: noise of regions together that leaves room for more of them."""

CORRECTIONS = 3
"""Groups that are found and made to count for more, in one round."""

Damages = Mapping[str, Mapping[str, float]]


class Chosen(Protocol):
    """A precision for every region."""

    @property
    def precisions(self) -> Mapping[str, str]:
        """By region."""

    @property
    def quantized(self) -> tuple[str, ...]:
        """The regions that are not float, in topological order."""


Choice = TypeVar("Choice", bound=Chosen)


@dataclass(frozen=True)
class Together(Generic[Choice]):
    """What was chosen.

    Attributes:
        found: None where nothing is within the limit.
        damages: by region and precision, those of culprits raised.
        culprits: regions that made more noise together than apart, found on the way.
        noise_ratio: of all its regions together; None where none is quantized.
    """

    found: Choice | None
    damages: Damages
    culprits: tuple[str, ...]
    noise_ratio: float | None


def choose_together(
    choose: Callable[[float, Damages], Choice | None],
    damages: Damages,
    joint: Callable[[Collection[str]], float],
    limit: float,
) -> Together[Choice]:
    """A choice whose regions together are within the limit, as far as a few corrections make it so.

    Args:
        choose: within a limit of the sum of damages.
        joint: the noise of the outputs with some regions quantized together.
    """
    culprits: tuple[str, ...] = ()
    made = _joined(choose(limit, damages), damages, joint)
    for _ in range(CORRECTIONS):
        if made.found is None or made.noise_ratio is None:
            break
        own = _own(made.found, damages)
        ratio = excess_ratio(made.found.quantized, own, made.noise_ratio)
        if made.noise_ratio <= limit or ratio < NOT_ADDITIVE_RATIO:  # a NaN is neither
            break
        group = find_culprits(made.found.quantized, own, joint)
        factor = max(excess_ratio(group, own, joint(group)), NOT_ADDITIVE_RATIO)
        culprits += tuple(name for name in group if name not in culprits)
        damages = raised(damages, group, factor)
        made = _joined(choose(limit, damages), damages, joint)
    return replace(_with_more(choose, made, joint, limit), culprits=culprits)


def _with_more(
    choose: Callable[[float, Damages], Choice | None],
    made: Together[Choice],
    joint: Callable[[Collection[str]], float],
    limit: float,
) -> Together[Choice]:
    """A choice of more regions, where those of one make less noise together than apart."""
    noise_ratio = made.noise_ratio
    if made.found is None or noise_ratio is None or not 0.0 < noise_ratio < ROOM_RATIO * limit < math.inf:
        return made
    apart = sum(_own(made.found, made.damages).values())
    if apart <= noise_ratio:
        return made
    more = _joined(choose(limit * apart / noise_ratio, made.damages), made.damages, joint)
    return more if more.noise_ratio is not None and more.noise_ratio <= limit else made


def _joined(
    found: Choice | None, damages: Damages, joint: Callable[[Collection[str]], float]
) -> Together[Choice]:
    has_noise = found is not None and bool(found.quantized)
    return Together(found, damages, (), joint(found.quantized) if found is not None and has_noise else None)


def _own(found: Chosen, damages: Damages) -> dict[str, float]:
    """The damage of each quantized region in the precision that it has."""
    return {name: damages[name][found.precisions[name]] for name in found.quantized}
