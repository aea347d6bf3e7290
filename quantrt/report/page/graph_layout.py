# SPDX-License-Identifier: Apache-2.0
"""A layered drawing of a graph of layers, folded into columns like the text of a newspaper.

Ranks by longest path; an edge over several ranks passes a narrow waypoint in each of them; crossings are
reduced by barycenters (Sugiyama, Tagawa, Toda 1981); places on a rank are the isotonic regression of where
the neighbours are, so that boxes never overlap. A deep network is a ribbon: it is cut, where the fewest edges
cross, into columns that together have about the shape of a screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["BOX_HEIGHT", "BOX_WIDTH", "Drawing", "draw_graph"]

BOX_WIDTH, BOX_HEIGHT = 172, 38
GAP_X, GAP_Y, GUTTER = 20, 26, 64
"""Pixels between boxes of a rank, between ranks, and between columns."""

LANES = 24
"""Pixels of a gutter in which edges run from one column to another."""

WAYPOINT_WIDTH = 10
SWEEPS = 7
HOLD_RATIO = 0.985
"""Of where its neighbours are; the rest is the middle, from which a deep graph would wander off else."""

BOX_WEIGHT = 50.0
"""Against a waypoint: an edge bends around boxes, boxes stay in line."""

MOST_COLUMNS = 64
CUT_SLACK_RATIO = 0.2
"""How far a cut may move from its even place to cross fewer edges, as a part of a column."""

MOST_WAYPOINTS = 12
"""Per box, on average; beyond it the longest edges are drawn straight, past what stands between."""

Edge = tuple[int, int]


@dataclass(frozen=True)
class Drawing:
    """Where everything is, in pixels.

    Attributes:
        width, height: of the whole.
        boxes: (left, top) of each node; all are BOX_WIDTH x BOX_HEIGHT.
        paths: an SVG path for each edge, in the order they were given.
        columns: into how many the ranks were folded.
    """

    width: int
    height: int
    boxes: tuple[tuple[int, int], ...]
    paths: tuple[str, ...]
    columns: int


@dataclass
class _Layers:
    """Nodes and waypoints on their ranks.

    Attributes:
        ranks: ids per rank, left to right; ids from `count` on are waypoints.
        rank_of: of every id.
        above, below: neighbours on the next rank up and down.
        routes: for each edge the ids it passes, ends included.
    """

    count: int
    ranks: list[list[int]]
    rank_of: list[int]
    above: list[list[int]]
    below: list[list[int]]
    routes: list[list[int]] = field(default_factory=list)
    x: list[float] = field(default_factory=list)

    def width(self, node: int) -> int:
        """Of a box, or of a waypoint."""
        return BOX_WIDTH if node < self.count else WAYPOINT_WIDTH


def draw_graph(count: int, edges: Sequence[Edge], *, aspect_ratio: float) -> Drawing:
    """Lay out `count` nodes; edges go from a lower to a higher node in order of execution.

    An edge that does not is drawn, but does not decide where anything is.

    Args:
        aspect_ratio: width over height of the whole that is wanted.
    """
    if not count:
        return Drawing(0, 0, (), (), 0)
    layers = _make_layers(count, edges)
    for sweep in range(SWEEPS):
        _order(layers, downwards=sweep % 2 == 0)
    _place(layers)
    return _fold(layers, _column_starts(layers, aspect_ratio))


def _make_layers(count: int, edges: Sequence[Edge]) -> _Layers:
    forward = [(a, b) for a, b in dict.fromkeys(edges) if a < b]
    rank_of = _rank(count, forward)
    layers = _Layers(count, [[] for _ in range(max(rank_of, default=-1) + 1)], rank_of, [], [])
    layers.above, layers.below = [[] for _ in rank_of], [[] for _ in rank_of]
    for node in range(count):
        layers.ranks[rank_of[node]].append(node)
    longest = _longest_span(forward, rank_of, MOST_WAYPOINTS * count)
    routes = {edge: _route(layers, edge, longest) for edge in forward}
    layers.routes = [routes.get(edge, list(edge)) for edge in edges]
    return layers


def _rank(count: int, edges: Sequence[Edge]) -> list[int]:
    """The longest path to each node; what has no input stands right above what reads it first."""
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    ranks: list[int] = []
    for node in range(count):
        ranks.append(max((ranks[other] + 1 for other in before[node]), default=0))
    for node in range(count):
        if after[node] and not before[node]:
            ranks[node] = min(ranks[other] for other in after[node]) - 1
    return ranks


def _longest_span(edges: Sequence[Edge], rank_of: Sequence[int], most: int) -> int:
    """Edges over more ranks than this get no waypoints, so that there are no more than `most` of them."""
    total = 0
    for span in sorted(rank_of[b] - rank_of[a] for a, b in edges):
        total += span - 1
        if total > most:
            return span - 1
    return len(rank_of)


def _route(layers: _Layers, edge: Edge, longest: int) -> list[int]:
    """The edge as ids on consecutive ranks; its waypoints are added to the layers."""
    a, b = edge
    first, last = layers.rank_of[a], layers.rank_of[b]
    if last - first > longest:
        return [a, b]
    passed = [a]
    for rank in range(first + 1, last):
        waypoint = len(layers.rank_of)
        layers.rank_of.append(rank)
        layers.ranks[rank].append(waypoint)
        layers.above.append([])
        layers.below.append([])
        passed.append(waypoint)
    passed.append(b)
    for upper, lower in zip(passed, passed[1:], strict=False):
        layers.below[upper].append(lower)
        layers.above[lower].append(upper)
    return passed


def _order(layers: _Layers, *, downwards: bool) -> None:
    """Sort every rank by the mean place of its neighbours on the rank before it."""
    neighbours = layers.above if downwards else layers.below
    place = {node: index for rank in layers.ranks for index, node in enumerate(rank)}
    for rank in layers.ranks if downwards else reversed(layers.ranks):
        wanted = {
            node: sum(place[other] for other in neighbours[node]) / len(neighbours[node])
            if neighbours[node]
            else float(place[node])
            for node in rank
        }
        rank.sort(key=wanted.__getitem__)
        place.update({node: index for index, node in enumerate(rank)})


def _place(layers: _Layers) -> None:
    """Centers of all ids, near those of their neighbours."""
    layers.x = [0.0] * len(layers.rank_of)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = layers.above if downwards else layers.below
        hold = HOLD_RATIO if sweep < SWEEPS - 1 else 1.0  # at last, lines are straight
        for rank in layers.ranks if downwards else reversed(layers.ranks):
            _place_rank(layers, rank, neighbours, hold)


def _place_rank(
    layers: _Layers, rank: Sequence[int], neighbours: Sequence[Sequence[int]], hold: float
) -> None:
    """The centers nearest to those wanted that keep the boxes of one rank apart.

    Least squares under x[i + 1] - x[i] >= gap is an isotonic regression of x less the sum of the gaps: pools
    of adjacent violators (Barlow et al. 1972) take their weighted mean.
    """
    offset, offsets = 0.0, []
    for index, node in enumerate(rank):
        if index:
            offset += (layers.width(rank[index - 1]) + layers.width(node)) / 2 + GAP_X
        offsets.append(offset)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for node, shift in zip(rank, offsets, strict=True):
        near = [other for other in neighbours[node] if other < layers.count] or neighbours[node]
        wanted = hold * sum(layers.x[other] for other in near) / len(near) if near else layers.x[node]
        mean, weight, size = wanted - shift, BOX_WEIGHT if node < layers.count else 1.0, 1
        while pools and pools[-1][0] > mean:
            left, left_weight, left_size = pools.pop()
            mean = (mean * weight + left * left_weight) / (weight + left_weight)
            weight, size = weight + left_weight, size + left_size
        pools.append((mean, weight, size))
    means = [mean for mean, _, size in pools for _ in range(size)]
    for node, shift, mean in zip(rank, offsets, means, strict=True):
        layers.x[node] = mean + shift


def _fold(layers: _Layers, starts: Sequence[int]) -> Drawing:
    """Cut the ranks into columns, side by side."""
    left, columns = GUTTER / 2, []
    position: list[tuple[float, float]] = [(0.0, 0.0)] * len(layers.rank_of)
    tallest = 0
    for start, end in zip(starts, [*starts[1:], len(layers.ranks)], strict=True):
        members = [node for rank in layers.ranks[start:end] for node in rank]
        low = min(layers.x[node] - layers.width(node) / 2 for node in members)
        high = max(layers.x[node] + layers.width(node) / 2 for node in members)
        for node in members:
            y = GAP_Y + (layers.rank_of[node] - start) * (BOX_HEIGHT + GAP_Y)
            position[node] = (left + layers.x[node] - low, y)
        columns.append((left, left + high - low))
        left += high - low + GUTTER
        tallest = max(tallest, end - start)
    height = 2 * GAP_Y + tallest * (BOX_HEIGHT + GAP_Y)
    column_of = {rank: k for k, start in enumerate(starts) for rank in range(start, len(layers.ranks))}
    gutters = [right + GUTTER / 2 for _, right in columns]
    return Drawing(
        width=math.ceil(left - GUTTER / 2),
        height=height,
        boxes=tuple(
            (round(position[n][0] - BOX_WIDTH / 2), round(position[n][1])) for n in range(layers.count)
        ),
        paths=tuple(_path(layers, route, position, column_of, gutters) for route in layers.routes),
        columns=len(starts),
    )


def _column_starts(layers: _Layers, aspect_ratio: float) -> list[int]:
    """The first rank of each column, for as many columns as come nearest to the shape that is wanted."""
    lows = [min(layers.x[node] - layers.width(node) / 2 for node in rank) for rank in layers.ranks]
    highs = [max(layers.x[node] + layers.width(node) / 2 for node in rank) for rank in layers.ranks]

    def misfit(starts: list[int]) -> float:
        spans = list(zip(starts, [*starts[1:], len(layers.ranks)], strict=True))
        width = sum(max(highs[a:b]) - min(lows[a:b]) + GUTTER for a, b in spans)
        height = max(b - a for a, b in spans) * (BOX_HEIGHT + GAP_Y)
        return abs(math.log(width / height / aspect_ratio))

    most = min(len(layers.ranks), MOST_COLUMNS)
    return min((_cut(layers, count) for count in range(1, most + 1)), key=misfit)


def _cut(layers: _Layers, count: int) -> list[int]:
    """The first rank of each of `count` columns or fewer, of about the same height."""
    total = len(layers.ranks)
    size = total / count
    starts = [0]
    for k in range(1, count):
        even, slack = round(k * size), int(size * CUT_SLACK_RATIO)
        near = range(max(even - slack, starts[-1] + 1), min(even + slack, total - 1) + 1)
        if near:
            # An edge passes each rank as a box or as a waypoint.
            starts.append(min(near, key=lambda rank: (len(layers.ranks[rank - 1]), abs(rank - even))))
    return starts


def _path(
    layers: _Layers,
    route: Sequence[int],
    position: Sequence[tuple[float, float]],
    column_of: dict[int, int],
    gutters: Sequence[float],
) -> str:
    """An edge as an SVG path: curves down a column, right angles from one column to another."""
    x, y = (round(value) for value in position[route[0]])
    at = (x, y + BOX_HEIGHT)
    words = [f"M{at[0]} {at[1]}"]
    for upper, lower in zip(route, route[1:], strict=False):
        x, y = (round(value) for value in position[lower])
        here, there = (column_of[layers.rank_of[node]] for node in (upper, lower))
        if here == there:
            middle = (at[1] + y) // 2
            words.append(f"C{at[0]} {middle} {x} {middle} {x} {y}")
        else:
            lane = round(gutters[here]) + (lower * 5) % LANES - LANES // 2  # side by side, not on one another
            words.append(f"V{at[1] + GAP_Y // 2}H{lane}V{y - GAP_Y // 2}H{x}V{y}")
        at = (x, y)
        if lower >= layers.count:
            at = (x, y + BOX_HEIGHT)
            words.append(f"V{at[1]}")
    return "".join(words)
