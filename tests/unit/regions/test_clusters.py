# SPDX-License-Identifier: Apache-2.0
"""Groups of nodes never close a circle, whatever is merged."""

import numpy as np
import pytest

from quantrt.regions.clusters import Clusters


def has_circle(groups: dict[int, int], edges: list[tuple[int, int]]) -> bool:
    """Whether groups that read from each other cannot be put in order: none is ready, some are left."""
    left = set(groups.values())
    between = {(groups[a], groups[b]) for a, b in edges if groups[a] != groups[b]}
    while ready := left - {b for a, b in between if a in left}:
        left -= ready
    return bool(left)


def random_edges(rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    pairs = [(a, b) for b in range(count) for a in range(b)]
    return [pair for pair in pairs if rng.random() < 2.0 / count]


@pytest.mark.parametrize("count", [1, 2, 7, 41])
def test_merges_succeed_exactly_where_no_circle_arises(count, rng):
    for _ in range(20):
        edges = random_edges(rng, count)
        clusters = Clusters(count, lambda node, edges=edges: {b for a, b in edges if a == node})
        for _ in range(2 * count):
            nodes = rng.integers(0, count, size=int(rng.integers(1, 4))).tolist()
            groups = {node: clusters.group_of(node) for node in range(count)}
            merged = {groups[node] for node in nodes}
            after = {node: min(merged) if group in merged else group for node, group in groups.items()}
            allowed = not has_circle(after, edges)
            assert clusters.can_merge(nodes) == allowed
            assert clusters.merge(nodes) == allowed
            if not allowed:
                assert groups == {node: clusters.group_of(node) for node in range(count)}
            check_order(clusters, count, edges)


def check_order(clusters: Clusters, count: int, edges: list[tuple[int, int]]) -> None:
    order = clusters.order()
    assert sorted(node for group in order for node in clusters.members(group)) == list(range(count))
    place = {group: number for number, group in enumerate(order)}
    for a, b in edges:
        assert place[clusters.group_of(a)] <= place[clusters.group_of(b)]
    for group in order:
        assert clusters.members(group) == sorted(clusters.members(group))
