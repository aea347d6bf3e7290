# SPDX-License-Identifier: Apache-2.0
"""Batch normalization becomes part of the convolution or product before it, before training begins.

    weight' = weight * factor   bias' = (bias - mean) * factor + beta   factor = gamma / sqrt(var + epsilon)

So what is rounded in training are the weights that will be stored. The statistics are those that the float
model was trained to; they do not move any more, as Krishnamoorthi 2018 (arXiv 1806.08342) advises from some
point of training on.
"""

from __future__ import annotations

import torch
from torch import fx, nn

from quantrt.torch.qat.fx_edit import add_parameter, parameter_of

__all__ = ["CHANNEL_AXIS", "fold_norms"]

_ATEN = torch.ops.aten
CHANNEL_AXIS = {
    _ATEN.conv1d.default: 0,
    _ATEN.conv2d.default: 0,
    _ATEN.conv3d.default: 0,
    _ATEN.conv1d.padding: 0,
    _ATEN.conv2d.padding: 0,
    _ATEN.conv3d.padding: 0,
    _ATEN.linear.default: 0,
}
"""Linear operators, and which axis of their weight counts output channels."""


def fold_norms(network: fx.GraphModule) -> int:
    """Fold each that is the only reader of a linear operator with parameters of its own; how many."""
    count = 0
    for node in list(network.graph.nodes):
        if node.target is _ATEN.batch_norm.default and _fold(network, node):
            count += 1
    if count:
        network.graph.eliminate_dead_code()
        network.recompile()
    return count


def _fold(network: fx.GraphModule, norm: fx.Node) -> bool:
    source = norm.args[0]
    if not isinstance(source, fx.Node) or source.target not in CHANNEL_AXIS or len(source.users) != 1:
        return False
    weight = parameter_of(network, source.args[1])
    bias_node = source.args[2] if len(source.args) > 2 else None
    statistics = [parameter_of(network, node) for node in norm.args[3:5]]
    gamma, beta = (parameter_of(network, node) for node in norm.args[1:3])
    is_shared = any(isinstance(node, fx.Node) and len(node.users) > 1 for node in (source.args[1], bias_node))
    if weight is None or is_shared or any(tensor is None for tensor in statistics):
        return False
    mean, variance = (tensor.detach().double() for tensor in statistics if tensor is not None)
    epsilon = float(norm.args[7])  # type: ignore[arg-type]  # a number, by the operator's schema
    factor = torch.rsqrt(variance + epsilon) * (1.0 if gamma is None else gamma.detach().double())
    bias = parameter_of(network, bias_node)
    before = torch.zeros_like(mean) if bias is None else bias.detach().double()
    shift = 0.0 if beta is None else beta.detach().double()
    rows = [1] * weight.ndim
    rows[CHANNEL_AXIS[source.target]] = -1
    with torch.no_grad():
        weight.copy_((weight.double() * factor.reshape(rows)).to(weight.dtype))
        folded = ((before - mean) * factor + shift).to(weight.dtype)
        if bias is not None:
            bias.copy_(folded)
    if bias is None:
        name = str(source.args[1].target).rpartition(".")[0]  # type: ignore[union-attr]
        node = add_parameter(network, f"{name}.bias" if name else "bias", nn.Parameter(folded), before=source)
        source.args = (*source.args[:2], node, *source.args[3:])
    norm.replace_all_uses_with(source)
    network.graph.erase_node(norm)
    return True
