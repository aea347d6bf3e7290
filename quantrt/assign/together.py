# SPDX-License-Identifier: Apache-2.0
"""A choice of regions that make no more noise together than is allowed.

Damages add up where roundings are independent. Where regions make more noise together than apart, that group
is found, and counts for more from then on; then it is chosen again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from quantrt.assign.culprits import excess_ratio, find_culprits, raised

__all__ = ["Chosen", "Together", "choose_together"]

NOT_ADDITIVE_RATIO = 1.5
"""Noise of regions together over the sum of their damages, from which on somebody is to blame: 1.8 dB."""

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
    choose: Callable[[Damages], Choice | None],
    damages: Damages,
    joint: Callable[[Collection[str]], float],
    limit: float,
) -> Together[Choice]:
    """A choice whose regions together are within the limit, as far as a few corrections make it so.

    Args:
        choose: within the limit by the sum of damages.
        joint: the noise of the outputs with some regions quantized together.
    """
    culprits: tuple[str, ...] = ()
    found = choose(damages)
    for is_last in (*(False,) * CORRECTIONS, True):
        if found is None or not found.quantized:
            return Together(found, damages, culprits, None)
        noise_ratio = joint(found.quantized)
        own = {name: damages[name][found.precisions[name]] for name in found.quantized}
        ratio = excess_ratio(found.quantized, own, noise_ratio)
        if is_last or noise_ratio <= limit or ratio < NOT_ADDITIVE_RATIO:  # a NaN is neither
            break
        group = find_culprits(found.quantized, own, joint)
        factor = max(excess_ratio(group, own, joint(group)), NOT_ADDITIVE_RATIO)
        culprits += tuple(name for name in group if name not in culprits)
        damages = raised(damages, group, factor)
        found = choose(damages)
    return Together(found, damages, culprits, noise_ratio)
