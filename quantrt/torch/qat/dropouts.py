# SPDX-License-Identifier: Apache-2.0
"""Dropout survives a trace in evaluation mode: torch puts a copy in its place, and notes what it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn

from quantrt.errors import InternalError
from quantrt.torch.qat.fx_edit import add_module

__all__ = ["find_dropouts", "restore_dropouts"]

_ATEN = torch.ops.aten
_KINDS = {
    _ATEN.dropout.default: nn.Dropout,
    _ATEN.feature_dropout.default: nn.Dropout2d,
    _ATEN.alpha_dropout.default: nn.AlphaDropout,
}
"""A dropout of whole channels drops the second axis, whatever the number of others."""


def find_dropouts(graph: fx.Graph) -> dict[str, nn.Module]:
    """A module for every dropout of a traced graph, by the name of its node."""
    return {
        node.name: _KINDS[node.target](float(node.args[1]))
        for node in graph.nodes
        if node.target in _KINDS and float(node.args[1]) > 0.0
    }


def restore_dropouts(network: fx.GraphModule, dropouts: Mapping[str, nn.Module]) -> None:
    """Put each where its copy stands.

    Raises:
        InternalError: one left no trace.
    """
    left = dict(dropouts)
    for node in list(network.graph.nodes):
        name = next((name for name in _origins(node) if name in left), None)
        if name is None or node.target not in (_ATEN.clone.default, _ATEN.alias.default):
            continue
        call = add_module(network, f"dropouts.{name}", left.pop(name), node)
        node.replace_all_uses_with(call, delete_user_cb=lambda user, call=call: user is not call)
    if left:
        raise InternalError(f"lost sight of {len(left)} dropouts while tracing, such as '{next(iter(left))}'")
    network.recompile()


def _origins(node: fx.Node) -> Iterator[str]:
    """Names of the nodes that a node came from, in any graph before."""
    pending: list[Any] = list(node.meta.get("from_node", ()))
    while pending:
        source = pending.pop()
        yield source.name
        pending.extend(source.from_node)
