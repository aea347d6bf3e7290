# SPDX-License-Identifier: Apache-2.0
"""Which nodes of the file became a node of the canonical graph.

A node that is still the file's own needs no record: its name is its source. A node that others were
merged into, or that was renamed, carries the names in `metadata_props`, one per line, so that they
survive cloning and saving.
"""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["SOURCES_KEY", "add_sources", "sources_of"]

SOURCES_KEY = "quantrt.sources"


def sources_of(node: ir.Node) -> tuple[str, ...]:
    """Names of the file's nodes that `node` stands for, its own first; one at least for a named node."""
    recorded = node.metadata_props.get(SOURCES_KEY)
    if recorded is not None:
        return tuple(recorded.split("\n"))
    return (node.name,) if node.name else ()


def add_sources(node: ir.Node, names: tuple[str, ...]) -> None:
    """Record that the nodes called `names` were merged into `node`; each name is kept once."""
    merged = dict.fromkeys((*sources_of(node), *(name.replace("\n", " ") for name in names)))
    node.metadata_props[SOURCES_KEY] = "\n".join(merged)
