# SPDX-License-Identifier: Apache-2.0
"""Boxes never overlap, edges go from box to box, and the whole has the shape that was asked for."""

import math
import re

import numpy as np
import pytest

from quantrt.report.page.graph_layout import BOX_HEIGHT, BOX_WIDTH, Drawing, draw_graph


def ladder(count: int) -> list[tuple[int, int]]:
    """A chain with a skip around every fifth node."""
    return [(i - 1, i) for i in range(1, count)] + [(i - 5, i) for i in range(10, count, 5)]


def random_edges(count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    pairs = ((int(rng.integers(max(0, b - 30), b)), b) for b in range(1, count) for _ in range(2))
    return list(dict.fromkeys(pairs))


def overlaps(drawing: Drawing) -> int:
    boxes = sorted(drawing.boxes)
    found = 0
    for index, (left, top) in enumerate(boxes):
        for other_left, other_top in boxes[index + 1 :]:
            if other_left >= left + BOX_WIDTH:
                break
            found += abs(other_top - top) < BOX_HEIGHT
    return found


def ends(path: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """First and last point of a path of absolute commands."""
    words = re.findall(r"[MCHV]|-?\d+", path)
    start, at, command, numbers = None, [0, 0], "", []
    for word in words:
        if word.isalpha():
            command, numbers = word, []
            continue
        numbers.append(int(word))
        if command == "H":
            at = [numbers[-1], at[1]]
        elif command == "V":
            at = [at[0], numbers[-1]]
        elif len(numbers) in {"M": (2,), "C": (6,)}[command]:
            at = numbers[-2:]
            start = start or tuple(at)
    return start, tuple(at)


@pytest.mark.parametrize("kind", ["ladder", "random", "unconnected"])
def test_boxes_do_not_overlap_and_are_inside(kind: str, rng: np.random.Generator):
    edges = {"ladder": ladder(300), "random": random_edges(300, rng), "unconnected": []}[kind]
    drawing = draw_graph(300, edges, aspect_ratio=1.9)
    assert overlaps(drawing) == 0
    for left, top in drawing.boxes:
        assert 0 <= left <= drawing.width - BOX_WIDTH and 0 <= top <= drawing.height - BOX_HEIGHT


@pytest.mark.parametrize("kind", ["ladder", "random"])
def test_edges_join_their_boxes(kind: str, rng: np.random.Generator):
    edges = ladder(120) if kind == "ladder" else random_edges(120, rng)
    drawing = draw_graph(120, edges, aspect_ratio=1.0)
    middles = [(left + BOX_WIDTH // 2, top) for left, top in drawing.boxes]
    for (a, b), path in zip(edges, drawing.paths, strict=True):
        start, end = ends(path)
        assert math.dist(start, (middles[a][0], middles[a][1] + BOX_HEIGHT)) <= 1.5
        assert math.dist(end, middles[b]) <= 1.5


@pytest.mark.parametrize("aspect_ratio", [0.9, 1.9])
@pytest.mark.parametrize("count", [30, 2000])
def test_a_ribbon_is_folded_into_the_shape_that_is_wanted(count: int, aspect_ratio: float):
    drawing = draw_graph(count, ladder(count), aspect_ratio=aspect_ratio)
    assert drawing.columns > 1
    assert 0.6 < drawing.width / drawing.height / aspect_ratio < 1.6


def test_a_chain_is_a_straight_line():
    drawing = draw_graph(5, [(0, 1), (1, 2), (2, 3), (3, 4)], aspect_ratio=0.1)
    assert len({left for left, _ in drawing.boxes}) == 1
    assert [top for _, top in drawing.boxes] == sorted(top for _, top in drawing.boxes)


def test_a_backward_edge_is_drawn_and_moves_nothing():
    plain = draw_graph(3, [(0, 1), (1, 2)], aspect_ratio=1.0)
    with_loop = draw_graph(3, [(0, 1), (1, 2), (2, 0)], aspect_ratio=1.0)
    assert with_loop.boxes == plain.boxes and len(with_loop.paths) == 3


def test_very_long_edges_cost_no_more_than_many_waypoints():
    count = 600
    edges = [(i - 1, i) for i in range(1, count)] + [(0, i) for i in range(2, count)]
    drawing = draw_graph(count, edges, aspect_ratio=1.9)
    assert len(drawing.paths) == len(edges) and overlaps(drawing) == 0
    assert sum(map(len, drawing.paths)) < 2_000_000


def test_nothing_to_draw():
    assert draw_graph(0, [], aspect_ratio=1.0).boxes == ()
    assert len(draw_graph(1, [], aspect_ratio=1.0).boxes) == 1


def test_the_same_graph_gives_the_same_drawing(rng: np.random.Generator):
    edges = random_edges(200, rng)
    assert draw_graph(200, edges, aspect_ratio=1.9) == draw_graph(200, edges, aspect_ratio=1.9)
