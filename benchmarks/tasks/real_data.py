# SPDX-License-Identifier: Apache-2.0
"""Real inputs for the real models: pictures, sentences, speech and machine sounds, read from the data folder.

The folder is `QUANTRT_TEST_DATA`, by default ../shared/data beside the repository.
"""

__all__ = [
    "DATA",
    "cifar_images",
    "imagenet_images",
    "normalized",
    "photos",
    "sentence_pairs",
    "speech_frames",
    "toycar_windows",
    "upsample",
]

import csv
import io
import os
import wave
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

DATA = Path(os.environ.get("QUANTRT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

FRAME = 512
"""New samples per step of the speech model, at 16 kHz."""
CONTEXT = 64
"""Samples of the frame before that each step sees again."""


def cifar_images(part: str, count: int | None, prep: dict[str, Any]) -> tuple[Floats, Array]:
    """CIFAR-10 pictures f32 [N, 3, 32, 32] and labels; a label is the number its file name starts with."""
    files = _pictures(DATA / "images" / f"cifar10_{part}.zip", count)
    images = np.stack([_normalize(picture, prep) for _, picture in files])
    return images, np.array([int(name.partition("_")[0]) for name, _ in files])


def imagenet_images(part: str, count: int | None, prep: dict[str, Any]) -> tuple[Floats, Array]:
    """ImageNet pictures f32 [N, 3, size, size] and class indices.

    They are 256x256 as stored; a size of 224 is cropped from the centre, smaller ones are scaled to.
    """
    with (DATA / "images" / "imagenet1k_samples_labels.csv").open(encoding="utf-8") as file:
        classes = {row["file"]: int(row["class_index"]) for row in csv.DictReader(file)}
    files = _pictures(DATA / "images" / f"imagenet1k_samples_{part}_256.zip", count)
    images = np.stack([_normalize(_fit(picture, prep["size"]), prep) for _, picture in files])
    return images, np.array([classes[name] for name, _ in files])


def photos(archive: str) -> list[Image.Image]:
    """The pictures of an archive in the folder of images, in its order, as they are stored."""
    return [picture for _, picture in _pictures(DATA / "images" / f"{archive}.zip", None)]


def normalized(pictures: Iterable[Image.Image], prep: dict[str, Any]) -> Floats:
    """Pictures of one size as a model's input, f32 [N, 3, H, W]."""
    return np.stack([_normalize(picture, prep) for picture in pictures])


def toycar_windows() -> Floats:
    """Windows of 5 consecutive log-mel frames of one clip, f32 [196, 640]."""
    path = DATA / "audio" / "ad_normal_id_01_00000000_logmel_200x128_f32le.bin"
    frames = np.fromfile(path, "<f4").reshape(200, 128)
    return np.stack([frames[start : start + 5].ravel() for start in range(len(frames) - 4)])


def speech_frames(offset: int = 0) -> Floats:
    """A minute of speech as the model's steps: context and new samples, f32 [1875 or 1874, 576].

    Args:
        offset: samples to leave out at the start.
    """
    with wave.open(str(DATA / "audio" / "silero_test.wav"), "rb") as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    sound = np.concatenate([np.zeros(CONTEXT, np.float32), sound[offset:]])
    starts = range(0, len(sound) - CONTEXT - FRAME + 1, FRAME)
    return np.stack([sound[start : start + CONTEXT + FRAME] for start in starts])


def sentence_pairs(part: str) -> tuple[list[tuple[str, str]], Array]:
    """STS-B sentence pairs and how similar people found them, 0 to 5."""
    with (DATA / "text" / f"stsb_en_{part}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
    return pairs, np.array([float(row["score_0_5"]) for row in rows])


def upsample(images: Floats) -> Floats:
    """Twice the height and width, bilinear, corners not aligned, f32 [N, C, H, W]."""
    for axis in (2, 3):
        size = images.shape[axis]
        source = np.clip((np.arange(2 * size) + 0.5) / 2 - 0.5, 0, None)
        low = np.floor(source).astype(int)
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        part = (source - low).astype(np.float32).reshape(shape)
        high = np.minimum(low + 1, size - 1)
        images = np.take(images, low, axis) * (1 - part) + np.take(images, high, axis) * part
    return images


def _pictures(path: Path, count: int | None) -> list[tuple[str, Image.Image]]:
    with zipfile.ZipFile(path) as archive:
        names = [
            name for name in archive.namelist() if Path(name).suffix.lower() in (".jpg", ".jpeg", ".png")
        ]
        return [
            (Path(name).name, Image.open(io.BytesIO(archive.read(name))).convert("RGB"))
            for name in names[:count]
        ]


def _fit(picture: Image.Image, size: int) -> Image.Image:
    if size < 224:
        return picture.resize((size, size), Image.Resampling.BILINEAR)
    left = (picture.width - size) // 2
    return picture.crop((left, left, left + size, left + size))


def _normalize(picture: Image.Image, prep: dict[str, Any]) -> Floats:
    """Pixels 0..255 RGB -> (pixel - mean) / std, f32 [3, H, W]."""
    pixels = np.asarray(picture, np.float32)
    normal = (pixels - np.array(prep["mean"], np.float32)) / np.array(prep["std"], np.float32)
    return np.ascontiguousarray(normal.transpose(2, 0, 1))
