# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits as 64x64 grey images, split once and for all into training, calibration and validation.

The 1,797 images are scikit-learn's copy of the UCI data set "Optical Recognition of Handwritten Digits":
real digits, 8x8 pixels, 17 grey levels. They are enlarged bilinearly to 64x64 and rounded to whole grey
values 0..255, which keeps the compressed arrays small and lets an 8-bit input tensor hold them exactly.

Run as a script it writes calibration.npz and validation.npz beside itself. Needs scikit-learn, not torch.
"""

__all__ = ["CALIBRATION_COUNT", "VALIDATION_COUNT", "Digits", "load_digits_64", "main"]

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

SIDE = 64
GREY_MAX = 16  # of the 8x8 source
VALIDATION_COUNT = 600
CALIBRATION_COUNT = 100
SPLIT_SEED = 20


@dataclass(frozen=True)
class Digits:
    """Images are float32 [count, 1, 64, 64] with whole values 0..255, labels int64 [count] of 0..9."""

    train_images: np.ndarray
    train_labels: np.ndarray
    calibration_images: np.ndarray
    validation_images: np.ndarray
    validation_labels: np.ndarray


def load_digits_64() -> Digits:
    """All digits, shuffled with a fixed seed: 600 for validation, the rest for training.

    The calibration images are the first 100 training images: no image that measures accuracy sets a range.
    """
    source = load_digits()
    images = np.stack([_enlarge(image) for image in source.images])[:, None]
    labels = source.target.astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    held_out, rest = order[:VALIDATION_COUNT], order[VALIDATION_COUNT:]
    return Digits(
        train_images=images[rest],
        train_labels=labels[rest],
        calibration_images=images[rest[:CALIBRATION_COUNT]],
        validation_images=images[held_out],
        validation_labels=labels[held_out],
    )


def _enlarge(image: np.ndarray) -> np.ndarray:
    """An 8x8 image with values 0..16 as float32 [64, 64] with whole values 0..255."""
    grey = np.rint(image * (255 / GREY_MAX)).astype(np.uint8)
    return np.asarray(Image.fromarray(grey).resize((SIDE, SIDE), Image.Resampling.BILINEAR)).astype(
        np.float32
    )


def main() -> None:
    """Write the calibration and validation arrays."""
    here = Path(__file__).resolve().parent
    digits = load_digits_64()
    np.savez_compressed(here / "calibration.npz", image=digits.calibration_images)
    np.savez_compressed(
        here / "validation.npz", image=digits.validation_images, labels=digits.validation_labels
    )


if __name__ == "__main__":
    main()
