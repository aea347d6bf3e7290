# SPDX-License-Identifier: Apache-2.0
"""The tasks on pictures. Where few are at hand, each is judged in several views."""

__all__ = ["CIFAR_TASKS", "load_cifar", "load_faces", "load_imagenet", "load_persons", "same_faces"]

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks.tasks.real_data import DATA, cifar_images, imagenet_images, normalized, photos, upsample
from benchmarks.tasks.task import CALIBRATION_SAMPLES, Outputs, Score, Task, rows, same_class
from benchmarks.tasks.views import Mirrored, crops, views

CIFAR_TASKS = (
    "cifar10_resnet8",
    "cifar10_resnet8_large",
    "cifar10_resnet20",
    "cifar10_resnet56",
    "cifar10_mobilenetv3_small",
    "cifar10_vit_tiny_d9",
    "cifar10_efficientvit_b0",
)
TRANSFORMERS = ("cifar10_vit_tiny_d9", "cifar10_efficientvit_b0")

BUILD_SAMPLES = 2000
"""Labelled pictures that a build checks its budget on."""
FACE_SCORE = 0.7  # from which the detector's own demo draws a box

Array = npt.NDArray[Any]


def load_cifar(name: str) -> Task:
    """One of CIFAR_TASKS."""
    prep = _prep(name)
    calibration, _ = cifar_images("calibration", CALIBRATION_SAMPLES, prep)
    images, labels = cifar_images("validation", None, prep)
    if "upsample" in prep:
        calibration, images = upsample(calibration), upsample(images)
    note = f"{len(images)} pictures and their mirror images; top-1 is of the pictures as they are"
    return _pictures_task(name, calibration, images, pictures=len(images), labels=labels, note=note)


def load_imagenet() -> Task:
    """Parts of 224x224 in the corners and the centre of 256x256; labels are those of the centres."""
    name = "mobilenet_v1_025_224"
    prep = _prep(name)
    calibration, _ = imagenet_images("calibration", CALIBRATION_SAMPLES, prep)
    centres, labels = imagenet_images("validation", None, prep)
    pictures = photos("imagenet1k_samples_validation_256")
    corners = _columns([crops(picture, prep["size"])[1:] for picture in pictures])
    images = np.concatenate([centres, normalized(corners, prep)])
    note = (
        f"{len(pictures)} pictures, centre and corners of each, mirrored too; top-1 is of the centres; they "
        "seem to be from ImageNet's training set"
    )
    return _pictures_task(name, calibration, images, pictures=len(pictures), labels=labels, note=note)


def load_persons() -> Task:
    """Whether a person is seen: pictures of everything, and the photos of people that are at hand."""
    name = "vww_mobilenet_v1_025_96"
    prep = _prep(name)
    calibration, _ = imagenet_images("calibration", CALIBRATION_SAMPLES, prep)
    pictures = photos("imagenet1k_samples_validation_256")
    people = [_centre(photo, photo.height, photo.height) for photo in photos("ultraface_demo_320x240")]
    size, count = (prep["size"], prep["size"]), len(pictures) + len(people)
    images = normalized(_columns([views(picture, size) for picture in [*pictures, *people]]), prep)
    note = (
        f"unlabelled: {len(pictures)} ImageNet pictures and {len(people)} photos of people scaled to 96x96, "
        "whole and four corners of each, mirrored too"
    )
    return _pictures_task(name, calibration, images, pictures=count, labels=None, note=note)


def _pictures_task(
    name: str, calibration: Array, images: Array, *, pictures: int, labels: Array | None, note: str
) -> Task:
    """A classifier judged on images and their mirror images.

    Args:
        images: all first views, then all second ones, ..., each in the order of the pictures.
        pictures: how many pictures these are views of.
        labels: of the first views.
    """
    first = images[: min(pictures, BUILD_SAMPLES)]
    score = None
    if labels is not None:
        score = Score(
            "top-1",
            lambda outputs: np.asarray(outputs[0][: len(labels)].argmax(1) == labels, np.float64),
            lambda values, rows: float(np.mean(values[rows])),
        )
    return Task(
        name,
        DATA / "models" / f"{name}.onnx",
        rows({"input": calibration}, 1),
        Mirrored("input", images, 50 if images[0].size < 50_000 else 8),
        np.arange(2 * len(images)) % pictures,
        {"input": first} | ({} if labels is None else {"labels": labels[: len(first)]}),
        decisions=same_class,
        score=score,
        note=note,
        is_transformer=name in TRANSFORMERS,
    )


def load_faces() -> Task:
    """Half of the detector's photos, and the ImageNet pictures, cut to 4:3, in which FP32 finds a face."""
    import onnxruntime

    name = "ultraface_rfb320"
    path, prep = DATA / "models" / f"{name}.onnx", _prep(name)
    all_photos = photos("ultraface_demo_320x240")
    own = all_photos[1::2]
    size = (own[0].width, own[0].height)
    session = onnxruntime.InferenceSession(path)
    others = [_centre(picture, 256, 192) for picture in photos("imagenet1k_samples_validation_256")]
    found = [
        picture
        for picture in others
        if np.any(
            session.run(None, {"input": normalized([picture.resize(size)], prep)})[0][..., 1] > FACE_SCORE
        )
    ]
    pictures = [*own, *found]
    images = normalized(_columns([views(picture, size) for picture in pictures]), prep)
    return Task(
        name,
        path,
        rows({"input": normalized(all_photos[0::2], prep)}, 1),
        Mirrored("input", images, 4),
        np.arange(2 * len(images)) % len(pictures),
        {"input": images[: len(own)]},
        decisions=_same_faces,
        note=f"{len(own)} photos, other ones than for calibration, and the {len(found)} of {len(others)} "
        "ImageNet pictures in which FP32 finds a face, whole and four corners of each, mirrored too; "
        "agreement is F1 of the anchors scored above 0.7",
    )


def _columns(rows: Sequence[Sequence[Image.Image]]) -> list[Image.Image]:
    """All first views, then all second ones, ..."""
    return [view for column in zip(*rows, strict=True) for view in column]


def _centre(picture: Image.Image, width: int, height: int) -> Image.Image:
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def _prep(name: str) -> dict[str, Any]:
    described = json.loads((DATA / "models.json").read_text(encoding="utf-8"))
    prep: dict[str, Any] = described[name]["prep"]
    return prep


def same_faces(outputs: Mapping[str, Array], labels: Mapping[str, Array]) -> float:
    """The mean of the detector's F1; as labels are FP32's scores. A metric of `quantrt build`."""
    return float(np.mean(_same_faces([labels["labels"]], list(outputs.values()))))


def _same_faces(ref: Outputs, got: Outputs) -> Array:
    """F1 per picture of the anchors scored as faces; 1 where neither finds any."""
    a, b = ref[0][..., 1] > FACE_SCORE, got[0][..., 1] > FACE_SCORE
    found = np.sum(a, axis=1) + np.sum(b, axis=1)
    return np.where(found > 0, 2 * np.sum(a & b, axis=1) / np.maximum(found, 1), 1.0)
