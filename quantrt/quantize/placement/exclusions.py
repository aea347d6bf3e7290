# SPDX-License-Identifier: Apache-2.0
"""Nodes that the user means: by name, by glob, by operator type."""

from __future__ import annotations

import fnmatch

import onnx_ir as ir

from quantrt.errors import UsageError, close_match
from quantrt.ir.sources import sources_of

__all__ = ["excluded_nodes", "named_nodes"]

_LIST = "`quantrt inspect MODEL.onnx --layers`, which lists them"


def excluded_nodes(graph: ir.Graph, globs: tuple[str, ...], types: tuple[str, ...]) -> dict[str, str]:
    """Names of excluded nodes, with the reason. A node goes by the names of the nodes merged into it too.

    Raises:
        UsageError: a name, glob or type matches no node.
    """
    found = {
        name: f"excluded by '{glob}'"
        for glob, names in named_nodes(graph, globs, "the exclusion").items()
        for name in names
    }
    known_types = sorted({node.op_type for node in graph})
    for op_type in types:
        if op_type not in known_types:
            near = close_match(op_type, known_types)
            raise UsageError(
                f"the model has no operator '{op_type}' to exclude", hint=f"'{near}'" if near else _LIST
            )
        found |= {
            (node.name or ""): f"excluded by type {op_type}" for node in graph if node.op_type == op_type
        }
    return found


def named_nodes(graph: ir.Graph, globs: tuple[str, ...], what: str) -> dict[str, tuple[str, ...]]:
    """By glob, the nodes that it means; a node goes by the names of the nodes merged into it too.

    Args:
        what: the globs are of, such as "the exclusion".

    Raises:
        UsageError: one matches no node.
    """
    aliases = [(name, (node.name or "")) for node in graph for name in {(node.name or ""), *sources_of(node)}]
    found: dict[str, tuple[str, ...]] = {}
    for glob in globs:
        # An exact name comes first: names may hold characters that mean something in a glob.
        hits = [node for name, node in aliases if name == glob] or [
            node for name, node in aliases if fnmatch.fnmatchcase(name, glob)
        ]
        if not hits:
            near = close_match(glob, [name for name, _ in aliases])
            raise UsageError(f"no layer matches {what} '{glob}'", hint=f"'{near}'" if near else _LIST)
        found[glob] = tuple(dict.fromkeys(hits))
    return found
