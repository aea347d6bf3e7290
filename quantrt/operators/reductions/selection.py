# SPDX-License-Identifier: Apache-2.0
"""Choosing by score: TopK and NonMaxSuppression. Equal scores are taken in the order of their indices."""

from __future__ import annotations

import torch

from quantrt.operators.element_types import restored, stored
from quantrt.operators.elementwise.unsigned import ordered
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "non_max_suppression", "top_k", "top_k_by_attribute"]


def top_k_by_attribute(x: torch.Tensor, *, k: int, axis: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """Opset 1: k is an attribute."""
    return _top_k(x, k, axis, True)


def top_k(
    x: torch.Tensor, k: torch.Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest or smallest elements along the axis and their indices, int64; always sorted."""
    del sorted
    return _top_k(x, int(k.item()), axis, bool(largest))


def non_max_suppression(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    max_output_boxes_per_class: torch.Tensor | None = None,
    iou_threshold: torch.Tensor | None = None,
    score_threshold: torch.Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> torch.Tensor:
    """Per image and class the best boxes, without those that overlap a better one.

    Args:
        boxes: [B, N, 4]: two opposite corners (y, x, y, x), or with center_point_box (x, y, width, height).
        scores: [B, C, N].
        max_output_boxes_per_class: none given: 0, no box at all.
        iou_threshold: a box goes when it shares more than this part of the union; 0.
        score_threshold: only boxes with a greater score count; all.

    Returns:
        [selected, 3], int64: image, class, box.
    """
    limit = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.item())
    overlap = 0.0 if iou_threshold is None else float(iou_threshold.item())
    least = None if score_threshold is None else float(score_threshold.item())
    corners = _corners(boxes, bool(center_point_box))
    found: list[tuple[int, int, int]] = []
    for image in range(boxes.shape[0] if limit > 0 else 0):
        clashes = (_intersection_over_union(corners[image]) > overlap).cpu()
        for kind in range(scores.shape[1]):
            ranked = _ranked(scores[image, kind].cpu(), least)
            kept = _without_clashes(ranked, clashes, limit)
            found += [(image, kind, box) for box in kept]
    return torch.tensor(found, dtype=torch.int64, device=boxes.device).reshape(-1, 3)


def _top_k(x: torch.Tensor, k: int, axis: int, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    _, indices = torch.sort(ordered(x), dim=axis, descending=largest, stable=True)
    indices = indices.narrow(axis, 0, k)
    return restored(torch.gather(stored(x), axis, indices), x.dtype), indices


def _corners(boxes: torch.Tensor, is_centre: bool) -> torch.Tensor:
    """[..., 4] as lower and upper bound of two axes."""
    if is_centre:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        return torch.cat([middle - half, middle + half], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return torch.cat([torch.minimum(first, second), torch.maximum(first, second)], -1)


def _intersection_over_union(corners: torch.Tensor) -> torch.Tensor:
    """[N, 4] to [N, N]; 0 for boxes without an area."""
    low = torch.maximum(corners[:, None, :2], corners[None, :, :2])
    high = torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    area = (corners[:, 2:] - corners[:, :2]).prod(-1)
    union = area[:, None] + area[None, :] - shared
    is_real = (area[:, None] > 0) & (area[None, :] > 0) & (union > 0)
    return torch.where(is_real, shared / torch.where(union > 0, union, torch.ones_like(union)), 0.0)


def _ranked(scores: torch.Tensor, least: float | None) -> list[int]:
    order: list[int] = torch.sort(scores, descending=True, stable=True).indices.tolist()
    return order if least is None else [box for box in order if float(scores[box]) > least]


def _without_clashes(ranked: list[int], clashes: torch.Tensor, limit: int) -> list[int]:
    kept: list[int] = []
    for box in ranked:
        if len(kept) == limit:
            break
        if not bool(clashes[box, kept].any()):
            kept.append(box)
    return kept


OPERATORS = (
    Operator("TopK", 1, top_k_by_attribute, until=9),
    Operator("TopK", 10, top_k),
    Operator("NonMaxSuppression", 10, non_max_suppression),
)
