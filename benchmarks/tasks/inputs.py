# SPDX-License-Identifier: Apache-2.0
"""Seeded inputs for the benchmark models: images with a natural spectrum, padded token sequences."""

__all__ = [
    "DETECTOR",
    "MODEL_NAMES",
    "SEQUENCE_LENGTH",
    "UNET",
    "Feed",
    "image_size",
    "make_images",
    "make_inputs",
    "make_tokens",
]

import numpy as np
import numpy.typing as npt

SEQUENCE_LENGTH = 128
IMAGE_SIZE = 224
VOCAB_SIZE = 30522  # BERT's uncased WordPiece vocabulary
FIRST_WORD_ID = 1000  # ids below it are special or unused in that vocabulary
CLS_ID, SEP_ID = 101, 102

IMAGE_MODELS = ("resnet50", "mobilenetv3_large_100", "vit_small_patch16_224", "efficientvit_b1")
TEXT_MODELS = ("all-MiniLM-L6-v2",)
MODEL_NAMES = IMAGE_MODELS + TEXT_MODELS

DETECTOR, UNET = "detector_s", "unet"
"""Networks of `benchmarks.nets.detector` and `benchmarks.nets.unet`."""

LARGE_IMAGES = {DETECTOR: 640, UNET: 512}

Feed = dict[str, npt.NDArray[np.generic]]


def make_inputs(model_name: str, batch: int, seed: int) -> Feed:
    """One batch for a benchmark model, by input name.

    Args:
        batch: number of images or of sequences of SEQUENCE_LENGTH tokens.
    """
    if model_name in TEXT_MODELS:
        return make_tokens(batch, SEQUENCE_LENGTH, seed)
    return {"images": make_images(batch, IMAGE_SIZE, seed)}


def image_size(model_name: str) -> int:
    """Height and width, in pixels, of the images that a model reads."""
    return LARGE_IMAGES.get(model_name, IMAGE_SIZE)


def make_images(batch: int, size: int, seed: int) -> npt.NDArray[np.float32]:
    """Normalised noise images f32 [batch, 3, size, size] with amplitude ~ 1 / frequency.

    Natural images have that spectrum (Field, 1987, J. Opt. Soc. Am. A 4, 2379); white noise would give a
    convolution near-Gaussian inputs only and make calibration too easy.
    """
    rng = np.random.default_rng(seed)
    white = np.fft.rfft2(rng.standard_normal((batch, 3, size, size)))
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None, :])
    frequency[0, 0] = 1.0 / size
    images = np.fft.irfft2(white / frequency, s=(size, size))
    images /= images.std(axis=(1, 2, 3), keepdims=True)
    return np.clip(images, -2.5, 2.5).astype(np.float32)


def make_tokens(batch: int, length: int, seed: int) -> Feed:
    """Random word ids int64 [batch, length]; the first sequence is full, the others are padded at random."""
    rng = np.random.default_rng(seed)
    input_ids = rng.integers(FIRST_WORD_ID, VOCAB_SIZE, (batch, length), dtype=np.int64)
    lengths = rng.integers(length // 2, length + 1, batch)
    lengths[0] = length
    mask = (np.arange(length)[None, :] < lengths[:, None]).astype(np.int64)
    input_ids[:, 0] = CLS_ID
    input_ids[np.arange(batch), lengths - 1] = SEP_ID
    return {"input_ids": input_ids * mask, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
