# SPDX-License-Identifier: Apache-2.0
"""Attention and RotaryEmbedding, as ONNX opsets 23 to 25 define them."""

from __future__ import annotations

import math

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import torch_type
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "attention", "rotary_embedding"]

# Values of qk_matmul_output_mode: what the fourth output holds.
_SCALED, _CAPPED, _BIASED, _PROBABILITIES = 0, 1, 2, 3


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    past_key: torch.Tensor | None = None,
    past_value: torch.Tensor | None = None,
    nonpad_kv_seqlen: torch.Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = _SCALED,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """softmax(scale * Q K^T + bias) V, with grouped heads, a cache and a soft cap.

    Args:
        q: [B, heads, S, D], or [B, S, heads * D] with q_num_heads; k and v likewise with L and kv heads.
        attn_mask: bool (may attend) or a bias; broadcasts to [B, heads, S, L]. Its missing keys
            are masked.
        past_key, past_value: [B, kv heads, P, D], put before k and v.
        nonpad_kv_seqlen: [B], keys from there on are masked.
        left_window_size, right_window_size: how far from its own place a query may look; -1: any distance.

    Returns:
        y shaped like q, the keys and values with their past, and the scores at the stage of the mode.
        A query that may attend to nothing gives 0.
    """
    if (past_key is None) != (past_value is None):
        raise ModelError("Attention has one of past_key and past_value", expected="both or neither")
    is_flat = q.dim() == 3
    q = _split_heads(q, q_num_heads) if is_flat else q
    k = _split_heads(k, kv_num_heads) if is_flat else k
    v = _split_heads(v, kv_num_heads) if is_flat else v
    keys = k if past_key is None else torch.cat([past_key, k], 2)
    values = v if past_value is None else torch.cat([past_value, v], 2)

    bias = _bias(
        q,
        keys.shape[2],
        attn_mask,
        _query_offset(q, past_key, nonpad_kv_seqlen),
        nonpad_kv_seqlen,
        (left_window_size, 0 if is_causal else right_window_size),
    )
    factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    half = torch.tensor(math.sqrt(factor), dtype=q.dtype, device=q.device)
    scores = torch.matmul(q * half, (_repeat(keys, q) * half).transpose(2, 3))
    stages = _stages(scores, bias, softcap, softmax_precision)
    y = torch.matmul(stages[_PROBABILITIES], _repeat(values, q))
    y = y.transpose(1, 2).flatten(2) if is_flat else y
    return y, keys, values, stages[qk_matmul_output_mode]


def rotary_embedding(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> torch.Tensor:
    """Pairs (a, b) of each head rotated: (a cos - b sin, a sin + b cos).

    Args:
        x: [B, heads, S, D], or [B, S, heads * D] with num_heads.
        cos, sin: [positions, R / 2] with position_ids [B, S], else [B, S, R / 2].
        interleaved: pairs are neighbours; else one half of the first R elements against the other.
        rotary_embedding_dim: R; 0: all of D. Elements from R on stay as they are.
    """
    is_flat = x.dim() == 3
    heads = _split_heads(x, num_heads) if is_flat else x
    size = rotary_embedding_dim or heads.shape[3]
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    if cos.shape[-1] != size // 2:
        raise ModelError(
            "the cosines of a RotaryEmbedding do not fit",
            got=f"{cos.shape[-1]} per position",
            expected=f"{size // 2}",
        )
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # [B, 1, S, R / 2]
    turned, kept = heads[..., :size], heads[..., size:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
    else:
        a, b = turned.chunk(2, -1)
    parts = (a * cos - b * sin, a * sin + b * cos)
    turned = torch.stack(parts, -1).flatten(3) if interleaved else torch.cat(parts, -1)
    y = torch.cat([turned, kept], -1)
    return y.transpose(1, 2).reshape(x.shape) if is_flat else y


def _stages(
    scaled: torch.Tensor, bias: torch.Tensor, softcap: float, precision: int | None
) -> dict[int, torch.Tensor]:
    """The scores after each stage by its mode, up to the probabilities."""
    capped = softcap * torch.tanh(scaled / softcap) if softcap > 0 else scaled
    biased = capped + bias
    wide = biased if precision is None else biased.to(torch_type(precision))
    nothing = (bias == -torch.inf).all(-1, keepdim=True)
    weights = torch.where(nothing, torch.zeros_like(wide), torch.softmax(wide, -1)).to(scaled.dtype)
    return {_SCALED: scaled, _CAPPED: capped, _BIASED: biased, _PROBABILITIES: weights}


def _split_heads(x: torch.Tensor, heads: int | None) -> torch.Tensor:
    if not heads:
        raise ModelError("a tensor of three axes needs the number of its heads", got="none")
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _repeat(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Every head of x as often as it takes to serve the heads of q."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _query_offset(
    q: torch.Tensor, past_key: torch.Tensor | None, lengths: torch.Tensor | None
) -> torch.Tensor:
    """Keys before the first query of this call: one number, or [B, 1, 1, 1] for a cache kept outside."""
    if past_key is None and lengths is not None:
        return (lengths.reshape(-1, 1, 1, 1) - q.shape[2]).to(torch.int64)
    return torch.tensor(0 if past_key is None else past_key.shape[2], device=q.device)


def _bias(
    q: torch.Tensor,
    key_count: int,
    mask: torch.Tensor | None,
    offset: torch.Tensor,
    lengths: torch.Tensor | None,
    window: tuple[int, int],
) -> torch.Tensor:
    """What is added to the scores: the mask, and minus infinity where a query may not look."""
    minus = torch.full((), -torch.inf, dtype=q.dtype, device=q.device)
    zero = torch.zeros((), dtype=q.dtype, device=q.device)
    bias = torch.zeros((q.shape[2], key_count), dtype=q.dtype, device=q.device)
    if mask is not None:
        added = torch.where(mask, zero, minus) if mask.dtype == torch.bool else mask
        missing = key_count - added.shape[-1]
        bias = bias + torch.nn.functional.pad(added, (0, missing), value=-torch.inf)
    query = torch.arange(q.shape[2], device=q.device).reshape(-1, 1) + offset
    distance = query - torch.arange(key_count, device=q.device)
    left, right = window
    if left >= 0:
        bias = bias + torch.where(distance <= left, zero, minus)
    if right >= 0:
        bias = bias + torch.where(-distance <= right, zero, minus)
    if lengths is not None:
        present = torch.arange(key_count, device=q.device) < lengths.reshape(-1, 1, 1, 1)
        bias = bias + torch.where(present, zero, minus)
    return bias


OPERATORS = (
    Operator("Attention", 23, attention),
    Operator("RotaryEmbedding", 23, rotary_embedding),
)
