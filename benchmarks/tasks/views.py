# SPDX-License-Identifier: Apache-2.0
"""Several fixed views of one picture: parts of it, and all of them mirrored.

Whether two models decide alike needs no labels, so where there are few pictures each is judged in several
views. Views of one picture are not independent: statistics draw pictures, not views.
"""

__all__ = ["Mirrored", "crops", "views"]

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks.tasks.inputs import Feed

Array = npt.NDArray[Any]

PART = 7 / 8
"""Width and height of a corner view over those of the picture: 224 of 256 pixels."""

CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Where the corner views lie: 0 is top or left, 1 bottom or right."""


def views(picture: Image.Image, size: tuple[int, int]) -> list[Image.Image]:
    """The whole picture and its four corners, each scaled to `size` (width, height)."""
    boxes = [(0.0, 0.0, float(picture.width), float(picture.height))]
    for down, right in CORNERS:
        width, height = PART * picture.width, PART * picture.height
        left, top = right * (picture.width - width), down * (picture.height - height)
        boxes.append((left, top, left + width, top + height))
    return [picture.resize(size, Image.Resampling.BILINEAR, box) for box in boxes]


def crops(picture: Image.Image, size: int) -> list[Image.Image]:
    """The centre and the four corners of a picture, `size` pixels wide and high, not scaled."""
    across, down = picture.width - size, picture.height - size
    corners = [(across // 2, down // 2), *((right * across, low * down) for low, right in CORNERS)]
    return [picture.crop((left, top, left + size, top + size)) for left, top in corners]


class Mirrored:
    """Batches of images, and after them the same with left and right exchanged.

    Args:
        name: of the model's input.
        images: f32 [N, C, H, W].
        size: of a batch.
    """

    def __init__(self, name: str, images: Array, size: int) -> None:
        self._name, self._images, self._size = name, images, size

    def __iter__(self) -> Iterator[Feed]:
        for images in (self._images, self._images[..., ::-1]):
            for start in range(0, len(images), self._size):
                yield {self._name: np.ascontiguousarray(images[start : start + self._size])}
