# SPDX-License-Identifier: Apache-2.0
"""Dropout survives a trace in evaluation mode: torch puts a copy in its place, and notes what it was.

It does so for plain dropout alone; those of channels and of SELU's kind vanish, so they become plain first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn

from quantrt.errors import InternalError
from quantrt.torch.qat.fx_edit import add_module

__all__ = ["restore_dropouts", "take_dropouts"]

_ATEN = torch.ops.aten
_KINDS: dict[Any, Callable[[float], nn.Module]] = {
    _ATEN.dropout.default: nn.Dropout,
    _ATEN.alpha_dropout.default: nn.AlphaDropout,
    _ATEN.feature_alpha_dropout.default: nn.FeatureAlphaDropout,
}
"""Of whole channels there is one more, by the number of axes."""

_OF_CHANNELS: dict[int, Callable[[float], nn.Module]] = {
    2: nn.Dropout,
    3: nn.Dropout1d,
    4: nn.Dropout2d,
    5: nn.Dropout3d,
}


def take_dropouts(graph: fx.Graph) -> dict[str, nn.Module]:
    """A module for every dropout of a traced graph, by the name of its node, which becomes a plain one."""
    found: dict[str, nn.Module] = {}
    for node in graph.nodes:
        kind = _kind(node)
        if kind is not None and float(node.args[1]) > 0.0:
            found[node.name] = kind(float(node.args[1]))
            node.target = _ATEN.dropout.default
    return found


def _kind(node: fx.Node) -> Callable[[float], nn.Module] | None:
    """Which dropout a node is; None for another one."""
    if node.target is _ATEN.feature_dropout.default:
        return _OF_CHANNELS.get(node.meta["val"].dim(), nn.Dropout2d)
    return _KINDS.get(node.target)


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
