# SPDX-License-Identifier: Apache-2.0
"""Attention written out while a module is traced, so that its two products have edges to quantize."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

__all__ = ["SpellAttention"]


class SpellAttention(TorchFunctionMode):
    """While active, attention is softmax(q * scale @ k^T + mask) @ v, one operator after another."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func`, or what takes its place."""
        call = _attention if func is functional.scaled_dot_product_attention else func
        return call(*args, **(kwargs or {}))


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
    """What torch documents scaled_dot_product_attention to compute; [..., L, E], [..., S, E], [..., S, V]."""
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
