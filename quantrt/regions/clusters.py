# SPDX-License-Identifier: Apache-2.0
"""Nodes merged step by step into groups that can run one after another: no merge ever closes a circle.

The order of the groups is kept topological through every merge, so that a merge looks only at the groups
that stand between those it merges (Pearce and Kelly, "A dynamic topological sort algorithm for directed
acyclic graphs", 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["Clusters"]


class Clusters:
    """Groups of the nodes 0 .. count - 1, at first one per node, in an order in which they can run.

    Args:
        count: of nodes; their numbers are a topological order.
        successors: the nodes that read what a node makes.
    """

    def __init__(self, count: int, successors: Callable[[int], set[int]]) -> None:
        self._group_of = list(range(count))
        self._members: dict[int, list[int]] = {node: [node] for node in range(count)}
        self._after: dict[int, set[int]] = {node: successors(node) for node in range(count)}
        self._order: list[int | None] = list(range(count))
        self._place = list(range(count))

    def group_of(self, node: int) -> int:
        """The group a node is in."""
        return self._group_of[node]

    def members(self, group: int) -> list[int]:
        """Its nodes, in topological order."""
        return self._members[group]

    def order(self) -> list[int]:
        """The groups, each after all that it reads from."""
        return [group for group in self._order if group is not None]

    def can_merge(self, nodes: Iterable[int]) -> bool:
        """Whether no path leaves the groups of these nodes and comes back."""
        groups = {self._group_of[node] for node in nodes}
        return not self._reached(groups) & groups

    def merge(self, nodes: Iterable[int]) -> bool:
        """Make one group of the groups of these nodes; False where that would close a circle."""
        groups = {self._group_of[node] for node in nodes}
        reached = self._reached(groups)
        if reached & groups:
            return False
        if len(groups) > 1:
            self._join(groups, reached)
        return True

    def _reached(self, groups: set[int]) -> set[int]:
        """What paths from the groups lead to, up to the last of them, by way of any group outside."""
        last = max(self._place[group] for group in groups)
        found: set[int] = set()
        frontier = [after for group in groups for after in self._followers(group) if after not in groups]
        while frontier:
            group = frontier.pop()
            if group in found or self._place[group] > last:
                continue
            found.add(group)
            if group not in groups:
                frontier.extend(self._followers(group))
        return found

    def _followers(self, group: int) -> set[int]:
        found = {self._group_of[node] for node in self._after[group]}
        found.discard(group)
        return found

    def _join(self, groups: set[int], reached: set[int]) -> None:
        places = sorted(self._place[group] for group in groups)
        window = self._order[places[0] : places[-1] + 1]
        merged = min(groups)
        others = [group for group in window if group is not None and group not in groups]
        before = [group for group in others if group not in reached]
        behind = [group for group in others if group in reached]
        line: list[int | None] = [*before, merged, *behind]
        line += [None] * (len(window) - len(line))
        self._order[places[0] : places[-1] + 1] = line
        for place, group in enumerate(line, start=places[0]):
            if group is not None:
                self._place[group] = place
        self._absorb(merged, groups)

    def _absorb(self, merged: int, groups: set[int]) -> None:
        members = sorted(node for group in groups for node in self._members[group])
        after = {node for group in groups for node in self._after[group]}
        for group in groups - {merged}:
            del self._members[group], self._after[group]
        self._members[merged], self._after[merged] = members, after
        for node in members:
            self._group_of[node] = merged
