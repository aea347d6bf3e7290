# SPDX-License-Identifier: Apache-2.0
"""Time: what each region takes in each precision, and what conversions between regions take.

    time(x) = sum_r time[r, x_r] + rate * sum_(r,s: x_r != x_s) elements[r, s]

The times of regions come from the layer profiles of two whole engines, float and 8-bit, so they are times in
context: with the fusions, layouts and conversions that the library chose. A layer outside all regions counts
with the region it stands before. The sums are scaled to what the whole engines take unwatched: layers that
compute in codes and in floats by factors of their own, where they were timed alone. The rate of conversions
is first that of layers that move data, then what measured mixed engines say it is; what these take beyond
that, the factors say.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from quantrt.assign.solve import Boundary
from quantrt.assign.tables.region import FLOAT, Region, Surroundings
from quantrt.assign.tables.whole_engines import Factors, TimedKernels, fit_factors

__all__ = ["CostModel", "Crossing", "TimedEngine", "TimedLayer", "cost_model"]

DEFAULT_NS_PER_ELEMENT = 0.5
"""Of a conversion where no layer of the engines shows it: five bytes at 10 GB/s, one core's share."""

LEAST_ELEMENTS = 4096
"""Of a layer whose rate means something: smaller ones are all overhead."""

Assignment = Mapping[str, str]
"""The precision of each region, by its name."""


@dataclass(frozen=True)
class TimedLayer:
    """A layer of an engine with its time.

    Attributes:
        nodes: of the canonical model, in its order; none for a conversion.
        time_ms: of one run.
        reads: for each input that another layer makes (place of that layer, elements, numpy's name of
            the type).
        in_codes: whether it was timed alone and computes in codes.
    """

    nodes: tuple[str, ...]
    time_ms: float
    reads: tuple[tuple[int, int, str], ...] = ()
    in_codes: bool = False


@dataclass(frozen=True)
class TimedEngine:
    """The layers of a whole engine, in the order in which they run, and what it takes unwatched."""

    layers: Sequence[TimedLayer]
    latency_ms: float

    @property
    def kernels(self) -> TimedKernels:
        """The sums of its layers."""
        codes_ms = sum(layer.time_ms for layer in self.layers if layer.in_codes)
        floats_ms = sum(layer.time_ms for layer in self.layers if not layer.in_codes)
        return TimedKernels(floats_ms, codes_ms, self.latency_ms)

    def in_context(self, factors: Factors) -> tuple[TimedLayer, ...]:
        """Its layers with what they take in it: by the factors, and so that their sum is what it takes."""
        kernels = self.kernels
        together_ms = factors.together_ms(kernels.floats_ms, kernels.codes_ms)
        rest = self.latency_ms / together_ms if together_ms else 0.0
        by_kind = {False: factors.floats * rest, True: factors.codes * rest}
        return tuple(replace(layer, time_ms=layer.time_ms * by_kind[layer.in_codes]) for layer in self.layers)


@dataclass(frozen=True)
class Crossing:
    """A tensor of codes between two regions: with either of them float it must be converted.

    Attributes:
        first, second: names of the regions that make and read it.
        elements: of the tensor.
    """

    first: str
    second: str
    elements: int


@dataclass(frozen=True)
class CostModel:
    """Times of regions and conversions.

    Attributes:
        times_ms: by region and precision.
        crossings: where conversions would be.
        ns_per_element: of a conversion.
        most_ns_per_element: what a conversion can take at most. Whole engines differ by more than by their
            conversions: by how warm the device is, and that is not these.
        codes_ms: of `times_ms` what layers take that compute in codes; empty where these have no factor of
            their own.
        unfitted: as it was before engines that were built changed it; None where none did.
    """

    times_ms: Mapping[str, Mapping[str, float]]
    crossings: tuple[Crossing, ...]
    ns_per_element: float
    most_ns_per_element: float = math.inf
    codes_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    unfitted: CostModel | None = field(default=None, compare=False)

    def predict_ms(self, assignment: Assignment) -> float:
        """What an engine with this assignment takes."""
        return self._inside_ms(assignment) + self._crossed(assignment) * self.ns_per_element / 1e6

    def boundaries(self, names: Sequence[str]) -> tuple[Boundary, ...]:
        """The conversions as the solver takes them.

        Args:
            names: of the regions, in the solver's order.
        """
        places = {name: place for place, name in enumerate(names)}
        found = []
        for row in self.crossings:
            ones, others = self.times_ms[row.first], self.times_ms[row.second]
            cost = row.elements * self.ns_per_element / 1e6
            costs = {(p, q): cost for p in ones for q in others if p != q}
            found.append(Boundary(places[row.first], places[row.second], costs))
        return tuple(found)

    def fitted(self, engines: Iterable[tuple[Assignment, float]]) -> CostModel:
        """The model with the rate of conversions that least squares give, from 0 to the most there can be.

        What engines take beyond that, layers in floats and in codes take, where these have factors.

        Args:
            engines: every one that was built and timed: its assignment and milliseconds.
        """
        timed = tuple(engines)
        before = self if self.unfitted is None else self.unfitted
        found = replace(before, ns_per_element=before._fitted_rate(timed), unfitted=before)
        return found._scaled(fit_factors([found._kernels(*one) for one in timed])) if self.codes_ms else found

    def _fitted_rate(self, engines: Iterable[tuple[Assignment, float]]) -> float:
        power, product = 0, 0.0
        for assignment, latency_ms in engines:
            crossed = self._crossed(assignment)
            power += crossed * crossed
            product += crossed * (latency_ms - self._inside_ms(assignment))
        if not power:
            return self.ns_per_element
        return min(max(product / power * 1e6, 0.0), self.most_ns_per_element)

    def _kernels(self, assignment: Assignment, latency_ms: float) -> TimedKernels:
        """What layers of an engine are predicted to take, and what it takes without conversions."""
        codes_ms = sum(row[assignment[name]] for name, row in self.codes_ms.items())
        converting_ms = self.predict_ms(assignment) - self._inside_ms(assignment)
        return TimedKernels(self._inside_ms(assignment) - codes_ms, codes_ms, latency_ms - converting_ms)

    def _scaled(self, factors: Factors) -> CostModel:
        """With all layers in floats, and all in codes, by so much slower."""
        times_ms = {
            name: {
                kind: factors.together_ms(time_ms - self.codes_ms[name][kind], self.codes_ms[name][kind])
                for kind, time_ms in row.items()
            }
            for name, row in self.times_ms.items()
        }
        codes_ms = {
            name: {kind: factors.codes * time_ms for kind, time_ms in row.items()}
            for name, row in self.codes_ms.items()
        }
        return replace(self, times_ms=times_ms, codes_ms=codes_ms)

    def _inside_ms(self, assignment: Assignment) -> float:
        return sum(times[assignment[name]] for name, times in self.times_ms.items())

    def _crossed(self, assignment: Assignment) -> int:
        """Elements that are converted between regions."""
        return sum(row.elements for row in self.crossings if assignment[row.first] != assignment[row.second])


def cost_model(
    regions: Sequence[Region],
    around: Surroundings,
    engines: Mapping[str, TimedEngine],
    *,
    unseen_ns_per_element: float = DEFAULT_NS_PER_ELEMENT,
    most_ns_per_element: float = math.inf,
) -> CostModel:
    """The model of engines that are in one precision each.

    Args:
        engines: by precision; FLOAT among them.
        unseen_ns_per_element: of a conversion where no layer of the engines shows it.
        most_ns_per_element: of a conversion, however slow a mixed engine turns out to be.
    """
    times: list[dict[str, float]] = [{} for _ in regions]
    codes: list[dict[str, float]] = [{} for _ in regions]
    crossings: dict[tuple[int, int], int] = {}
    rates: list[float] = []
    factors = fit_factors([engine.kernels for engine in engines.values()])
    for precision, engine in engines.items():
        layers = engine.in_context(factors)
        owners = _owners(layers, around)
        for row in (*times, *codes):
            row[precision] = 0.0
        for layer, owner in zip(layers, owners, strict=True):
            if owner is not None:
                times[owner][precision] += layer.time_ms
                codes[owner][precision] += layer.time_ms if layer.in_codes else 0.0
        _spread_rest(times, precision, engine.latency_ms)
        if precision != FLOAT:
            crossings |= _crossings(layers, owners)
            rates += _rates(layers, around)
    has_codes = any(layer.in_codes for engine in engines.values() for layer in engine.layers)
    return CostModel(
        times_ms={region.name: row for region, row in zip(regions, times, strict=True)},
        crossings=tuple(
            Crossing(regions[first].name, regions[second].name, elements)
            for (first, second), elements in crossings.items()
        ),
        ns_per_element=statistics.median(rates) if rates else unseen_ns_per_element,
        most_ns_per_element=most_ns_per_element,
        codes_ms={region.name: row for region, row in zip(regions, codes, strict=True)} if has_codes else {},
    )


def _owners(layers: Sequence[TimedLayer], around: Surroundings) -> list[int | None]:
    """The region that each layer's time counts with."""
    owners: list[int | None] = []
    for layer in layers:
        own = [around.of_node[node] for node in layer.nodes if node in around.of_node]
        if own:
            owners.append(own[0])
        else:
            owners.append(around.around(layer.nodes[-1]) if layer.nodes else None)
    # A conversion counts with its reader, which may be another one: from behind.
    for place in reversed(range(len(layers))):
        for maker, _, _ in layers[place].reads:
            if owners[maker] is None:
                owners[maker] = owners[place]
    for place, layer in enumerate(layers):
        if owners[place] is None and layer.reads:
            owners[place] = owners[layer.reads[0][0]]
    return owners


def _spread_rest(times: Sequence[dict[str, float]], precision: str, latency_ms: float) -> None:
    """Share what belongs to no region among all, so that their sum is the whole engine's time."""
    rest = latency_ms - sum(row[precision] for row in times)
    for row in times:
        row[precision] += rest / len(times)


def _crossings(layers: Sequence[TimedLayer], owners: Sequence[int | None]) -> dict[tuple[int, int], int]:
    """Elements of codes from region to region, each tensor once for every region that reads it."""
    tensors: dict[tuple[int, int, int], int] = {}
    for layer, owner in zip(layers, owners, strict=True):
        for maker, elements, dtype in layer.reads:
            source = owners[maker]
            if source is not None and owner is not None and source != owner and _is_code(dtype):
                tensors[source, owner, maker] = elements
    found: dict[tuple[int, int], int] = {}
    for (source, owner, _), elements in tensors.items():
        found[source, owner] = found.get((source, owner), 0) + elements
    return found


def _is_code(dtype: str) -> bool:
    return dtype in ("int8", "uint8") or dtype.startswith("float8")


def _rates(layers: Iterable[TimedLayer], around: Surroundings) -> list[float]:
    """Nanoseconds per element of layers that compute no region."""
    found = []
    for layer in layers:
        elements = sum(count for _, count, _ in layer.reads)
        if elements >= LEAST_ELEMENTS and not any(node in around.of_node for node in layer.nodes):
            found.append(layer.time_ms * 1e6 / elements)
    return found
