# SPDX-License-Identifier: Apache-2.0
"""Pictures with drawn shapes and their boxes, and how well a detector finds them."""

__all__ = ["SIZE", "Truth", "average_precision", "draw", "found_ratio"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

SIZE = 96
"""Height and width of a picture."""
CLASSES = 3
"""Rectangle, ellipse, triangle."""


@dataclass(frozen=True)
class Truth:
    """What is on a picture.

    Attributes:
        labels: i64 [boxes].
        boxes: f32 [boxes, 4], centre and size in parts of the picture.
    """

    labels: npt.NDArray[Any]
    boxes: Floats


def draw(rng: np.random.Generator) -> tuple[Floats, Truth]:
    """One to four shapes, the later ones over the earlier, on a noisy ground: f32 [3, SIZE, SIZE]."""
    image = rng.normal(0, 0.15, (3, SIZE, SIZE)) + rng.uniform(-0.5, 0.5, (3, 1, 1))
    rows, columns = np.mgrid[:SIZE, :SIZE]
    labels, boxes = [], []
    for _ in range(rng.integers(1, 5)):
        width, height = rng.uniform(12, 44, 2)
        x, y = rng.uniform(width / 2, SIZE - width / 2), rng.uniform(height / 2, SIZE - height / 2)
        u, v = (columns - x) / (width / 2), (rows - y) / (height / 2)
        label = int(rng.integers(0, CLASSES))
        inside = (
            (abs(u) <= 1) & (abs(v) <= 1),
            u * u + v * v <= 1,
            (abs(v) <= 1) & (abs(u) <= (v + 1) / 2),
        )[label]
        colour = rng.uniform(-2, 2, (3, 1))
        image[:, inside] = colour + rng.normal(0, 0.1, (3, int(inside.sum())))
        labels.append(label)
        boxes.append([x / SIZE, y / SIZE, width / SIZE, height / SIZE])
    return image.astype(np.float32), Truth(np.asarray(labels), np.asarray(boxes, np.float32))


def average_precision(logits: Floats, boxes: Floats, truth: Sequence[Truth], least_iou: float) -> float:
    """Mean over the classes of the area under precision over recall, precision made falling.

    Args:
        logits: [samples, rows, CLASSES].
        boxes: [samples, rows, 4].
        least_iou: intersection over union from which on a box is the true one.
    """
    return float(np.mean([_of_class(logits, boxes, truth, least_iou, label) for label in range(CLASSES)]))


def found_ratio(
    ref: Sequence[Floats], got: Sequence[Floats], *, least_score: float, least_iou: float
) -> float:
    """Part of the reference's detections that have one of their class and place in what is judged.

    Args:
        ref, got: logits and boxes.
    """
    found = []
    for logits, boxes, own_logits, own_boxes in zip(*ref, *got, strict=True):
        sure = 1 / (1 + np.exp(-logits.max(1))) > least_score
        same = logits[sure].argmax(1)[:, None] == own_logits.argmax(1)[None]
        found += list((_iou(boxes[sure], own_boxes) * same).max(1) >= least_iou)
    return float(np.mean(found))


def _of_class(logits: Floats, boxes: Floats, truth: Sequence[Truth], least_iou: float, label: int) -> float:
    hits: list[tuple[float, bool]] = []
    for scores, places, true in zip(logits[..., label], boxes, truth, strict=True):
        wanted = true.boxes[true.labels == label]
        overlap, used = _iou(places, wanted), set[int]()
        for row in np.argsort(-scores):
            best = int(overlap[row].argmax()) if len(wanted) else -1
            is_hit = best >= 0 and bool(overlap[row, best] >= least_iou) and best not in used
            used |= {best} if is_hit else set()
            hits.append((float(scores[row]), is_hit))
    hits.sort(key=lambda hit: -hit[0])
    right = np.cumsum([is_hit for _, is_hit in hits])
    precision = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
    recall = right / max(1, sum(int((true.labels == label).sum()) for true in truth))
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def _iou(a: Floats, b: Floats) -> Floats:
    """Intersection over union of each box of one with each of the other."""
    low = np.maximum((a[:, :2] - a[:, 2:] / 2)[:, None], (b[:, :2] - b[:, 2:] / 2)[None])
    high = np.minimum((a[:, :2] + a[:, 2:] / 2)[:, None], (b[:, :2] + b[:, 2:] / 2)[None])
    common = np.prod(np.clip(high - low, 0, None), axis=2)
    areas = np.prod(a[:, 2:], axis=1)[:, None] + np.prod(b[:, 2:], axis=1)[None]
    ratio: Floats = common / np.maximum(areas - common, 1e-9)
    return ratio
