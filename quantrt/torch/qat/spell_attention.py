# SPDX-License-Identifier: Apache-2.0
"""Attention written out in a traced module, so that its two products have edges to quantize."""

from __future__ import annotations

import math

import torch
from torch import fx
from torch.nn import functional

__all__ = ["spell_attention"]


def spell_attention(network: fx.GraphModule) -> int:
    """Let each scaled_dot_product_attention be computed operator by operator; how many.

    The network then calls a Python function, which the next trace goes into.
    """
    count = 0
    for node in network.graph.nodes:
        if node.target is torch.ops.aten.scaled_dot_product_attention.default:
            node.target = _attention
            count += 1
    network.recompile()
    return count


def _attention(  # noqa: PLR0917  # the signature that callers know
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(q * scale @ k^T + mask) @ v, as torch documents it.

    Args:
        query, key, value: [..., L, E], [..., S, E] and [..., S, V].
    """
    if enable_gqa:
        groups = query.size(-3) // key.size(-3)
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    factor = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        kept = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~kept, -math.inf)
    if attn_mask is not None:
        is_choice = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_choice else scores + attn_mask
    weights = torch.softmax(scores, dim=-1)
    return functional.dropout(weights, dropout_p) @ value if dropout_p > 0.0 else weights @ value
