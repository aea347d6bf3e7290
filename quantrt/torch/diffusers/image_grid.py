# SPDX-License-Identifier: Apache-2.0
"""Images of several engines side by side: a row per prompt, a column per engine, its likeness below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from quantrt.errors import DataError
from quantrt.ir.atomic import replace_file
from quantrt.torch.diffusers.image_quality import psnr_db, ssim

__all__ = ["save_image_grid"]

_CAPTION_PX = 16
_GAP_PX = 4


def save_image_grid(columns: Mapping[str, Sequence[np.ndarray]], path: str | Path) -> None:
    """Write a PNG; the first column is the reference of the others' PSNR and SSIM.

    Args:
        columns: images f32 [height, width, 3] in 0..1 by title, equally many and of one shape in each.

    Raises:
        DataError: there are none, or columns differ in number or shape.
        DeviceError: the path cannot be written.
    """
    from PIL import Image, ImageDraw  # not at the top: only pictures need it

    titles = list(columns)
    shapes = {image.shape for images in columns.values() for image in images}
    if not titles or len({len(images) for images in columns.values()}) != 1 or len(shapes) != 1:
        raise DataError(
            "cannot make a grid of these images",
            got=", ".join(f"{title}: {len(images)}" for title, images in columns.items()) or "no columns",
            expected="equally many images of one shape in every column",
        )
    height, width, _ = next(iter(shapes))
    rows = len(columns[titles[0]])
    step_x, step_y = width + _GAP_PX, height + _CAPTION_PX + _GAP_PX
    canvas = Image.new("RGB", (step_x * len(titles), step_y * rows), "white")
    draw = ImageDraw.Draw(canvas)
    for x, title in enumerate(titles):
        for y, image in enumerate(columns[title]):
            pixels = np.rint(np.clip(image, 0.0, 1.0) * 255.0).astype(np.uint8)
            canvas.paste(Image.fromarray(pixels), (x * step_x, y * step_y))
            caption = title if x == 0 else f"{title} {_likeness(columns[titles[0]][y], image)}"
            draw.text((x * step_x, y * step_y + height + 1), caption, fill="black")
    with replace_file(Path(path)) as file:
        canvas.save(file, format="PNG")


def _likeness(reference: np.ndarray, image: np.ndarray) -> str:
    return f"{psnr_db(reference, image):.1f} dB, SSIM {ssim(reference, image):.3f}"
