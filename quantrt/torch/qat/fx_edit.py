# SPDX-License-Identifier: Apache-2.0
"""The few edits of a traced module that quantization-aware training is made of."""

from __future__ import annotations

import torch
from torch import fx, nn

__all__ = ["add_module", "add_parameter", "parameter_of"]


def parameter_of(network: nn.Module, node: object) -> torch.Tensor | None:
    """The parameter or buffer that a node reads; None for any other node."""
    if not isinstance(node, fx.Node) or node.op != "get_attr" or not isinstance(node.target, str):
        return None
    path, _, name = node.target.rpartition(".")
    tensor = getattr(network.get_submodule(path), name, None)
    return tensor if isinstance(tensor, torch.Tensor) else None


def add_parameter(network: fx.GraphModule, name: str, value: nn.Parameter, *, before: fx.Node) -> fx.Node:
    """A new parameter, under the first free name, and a node that reads it."""
    path, _, last = name.rpartition(".")
    owner = network.get_submodule(path)
    while hasattr(owner, last) and getattr(owner, last) is not None:
        last += "_"
    if hasattr(owner, last):  # a module without bias has None there
        delattr(owner, last)
    owner.register_parameter(last, value)
    with network.graph.inserting_before(before):
        return network.graph.get_attr(f"{path}.{last}" if path else last)


def add_module(network: fx.GraphModule, name: str, module: nn.Module, source: fx.Node) -> fx.Node:
    """A call of `module`, kept in the network as `name`, on what `source` makes; right behind it."""
    if name not in dict(network.named_modules()):
        network.add_submodule(name, module)
    place = source
    if source.op == "placeholder":  # these stay in front
        *_, place = network.graph.find_nodes(op="placeholder")
    with network.graph.inserting_after(place):
        call = network.graph.call_module(name, (source,))
    if "val" in source.meta:
        call.meta["val"] = source.meta["val"]
    return call
