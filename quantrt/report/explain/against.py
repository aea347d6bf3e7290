# SPDX-License-Identifier: Apache-2.0
"""Two engines of one model held against each other: by the layers that compute the same nodes together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quantrt.report.engine_layers.graph import align_layers
from quantrt.report.engine_layers.layer import EngineLayer
from quantrt.report.explain.times import Times

__all__ = ["Against", "Beside", "layers_beside"]


@dataclass(frozen=True, kw_only=True)
class Against:
    """Another engine of the same model, timed on the same inputs.

    Attributes:
        name: of its file.
        layers: what it consists of.
        times: of these.
        conversions_us: of its conversions together.
    """

    name: str
    precision: str
    layers: tuple[EngineLayer, ...]
    times: Times
    conversions_us: float


@dataclass(frozen=True)
class Beside:
    """Layers of both engines that compute the same nodes, with nothing left over on either side.

    Attributes:
        layers, others: names, in the order in which they run.
        time_us, other_us: of each side together; None where one of its layers has no time.
    """

    layers: tuple[str, ...]
    others: tuple[str, ...]
    time_us: float | None
    other_us: float | None


def layers_beside(layers: Sequence[EngineLayer], times: Times, other: Against) -> tuple[Beside, ...]:
    """The groups that both engines have, in the order of the first."""
    found = []
    for group in align_layers(layers, other.layers):
        if group.left and group.right:
            here = tuple(layers[place].name for place in group.left)
            there = tuple(other.layers[place].name for place in group.right)
            found.append(Beside(here, there, _together(here, times), _together(there, other.times)))
    return tuple(found)


def _together(names: Sequence[str], times: Times) -> float | None:
    if any(name not in times.layer_us for name in names):
        return None
    return sum(times.layer_us[name] for name in names)
