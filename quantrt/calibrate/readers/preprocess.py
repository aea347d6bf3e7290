# SPDX-License-Identifier: Apache-2.0
"""From a picture to the array a model was trained on.

A spec is KEY=VALUE parts with commas between, in any order; several values of one key have semicolons:

    resize=256,crop=224,mean=0.485;0.456;0.406,std=0.229;0.224;0.225

    resize=N | HxW       shorter side to N, or both to HxW; default: the input's size when there is no crop
    crop=N | HxW         centre crop; default: the input's size
    interpolation=NAME   bilinear, bicubic, nearest, box, hamming or lanczos; default bilinear
    order=rgb|bgr|gray   default rgb, gray for an input with one channel
    scale=X | X/Y        multiplies the 0..255 values first; default 1/255, and 1 for a whole-number input
    mean=X[;X;X]         subtracted next, one for all or per channel; default 0; "imagenet" sets std too
    std=X[;X;X]          divides last; default 1
    layout=nchw|nhwc     default: where the input has its channels

That is y = (x * scale - mean) / std in float32.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quantrt.errors import DataError, UsageError, close_match
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.option_checks import check_choice

__all__ = ["INTERPOLATIONS", "PreprocessSpec", "parse_preprocess"]

Array = npt.NDArray[Any]
Size = tuple[int, int]

KEYS = ("resize", "crop", "interpolation", "order", "scale", "mean", "std", "layout")
INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "box", "hamming", "lanczos")
ORDERS = ("rgb", "bgr", "gray")
LAYOUTS = ("nchw", "nhwc")
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Statistics of the ImageNet training set that torchvision's models use, for values scaled to 0..1."""
EXAMPLE = "resize=256,crop=224,mean=imagenet"
_KEY_BEHIND_SEMICOLON = re.compile(rf";\s*((?:{'|'.join(KEYS)})=)", re.IGNORECASE)
MAX_SIDE = 16384
MAX_UNIT_STATISTIC = 2.0
"""No mean or deviation of values in 0..1 exceeds 1; above this the writer had 0..255 in mind."""


@dataclass(frozen=True, kw_only=True)
class PreprocessSpec:
    """What is done to each picture; the defaults are filled in from the model's input.

    Attributes:
        resize: int for the shorter side, (height, width) for both; None to leave the size.
        crop: (height, width), centred; None to keep all.
        scale, mean, std: y = (x * scale - mean) / std; mean and std have 1 value or one per channel.
        channels: 1 for gray, otherwise 3.
        is_integer: the result is rounded to whole numbers and stays uint8.
    """

    resize: int | Size | None
    crop: Size | None
    interpolation: str
    order: str
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layout: str
    is_integer: bool

    def __call__(self, image: npt.NDArray[np.uint8]) -> Array:
        """One picture uint8 [H, W, C] or [H, W], red first -> [C, H, W] or [H, W, C], float32 or uint8."""
        from PIL import Image

        picture = Image.fromarray(image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image)
        picture = picture.convert("L" if self.order == "gray" else "RGB")
        picture = self._sized(picture)
        pixels = np.asarray(picture, np.uint8)
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
        if self.order == "bgr":
            pixels = pixels[:, :, ::-1]
        scale, mean, std = (np.array(x, np.float32) for x in (self.scale, self.mean, self.std))
        values = (pixels.astype(np.float32) * scale - mean) / std
        if self.is_integer:
            values = np.clip(np.rint(values), 0, 255).astype(np.uint8)
        return np.ascontiguousarray(values.transpose(2, 0, 1) if self.layout == "nchw" else values)

    def _sized(self, picture: Any) -> Any:
        from PIL import Image

        width, height = picture.size
        if self.resize is not None:
            if isinstance(self.resize, int):
                factor = self.resize / min(height, width)
                target = (
                    self.resize if height <= width else max(1, int(height * factor)),
                    self.resize if width <= height else max(1, int(width * factor)),
                )
            else:
                target = self.resize
            if max(target) > MAX_SIDE:
                raise DataError(
                    "cannot resize this picture", got=f"{width}x{height} to {target[1]}x{target[0]}"
                )
            method = Image.Resampling[self.interpolation.upper()]
            picture = picture.resize((target[1], target[0]), method)
        if self.crop is None or self.crop == picture.size[::-1]:
            return picture
        width, height = picture.size
        crop_height, crop_width = self.crop
        if crop_height > height or crop_width > width:
            raise DataError(
                "cannot crop this picture",
                got=f"{width}x{height} pixels",
                expected=f"at least {crop_width}x{crop_height}",
                hint=f"resize={max(self.crop)} before the crop",
            )
        left, top = round((width - crop_width) / 2), round((height - crop_height) / 2)
        return picture.crop((left, top, left + crop_width, top + crop_height))


def parse_preprocess(text: str, spec: TensorSpec) -> PreprocessSpec:
    """Read a spec; what it leaves out comes from the model's input.

    Raises:
        UsageError: an unknown key or value; suggests the nearest. Or the input is no picture.
    """
    given = _split(text)
    layout, channels, size = _picture_input(spec, given.get("layout"))
    is_integer = spec.scale is None and not spec.dtype.startswith(("float", "bfloat"))
    crop = _size("crop", given["crop"]) if "crop" in given else None
    resize = _resize(given["resize"]) if "resize" in given else None
    if crop is None and size is not None:
        if resize is None:
            resize = size
        elif resize != size:
            crop = size
    order = _choice("order", given.get("order", "gray" if channels == 1 else "rgb"), ORDERS)
    if (order == "gray") != (channels == 1):
        raise UsageError(f"cannot use order={order} for input {spec}", got=f"{channels} channels")
    mean_text = given.get("mean", "0")
    mean = _statistics("mean", mean_text, IMAGENET_MEAN, channels)
    std_text = given.get("std", "imagenet" if mean_text == "imagenet" else "1")
    std = _statistics("std", std_text, IMAGENET_STD, channels)
    if "scale" not in given and not is_integer and max(*mean, *std) > MAX_UNIT_STATISTIC:
        raise UsageError(
            f"--preprocess '{text}' does not say what mean and std apply to",
            got="values for 0..255, while pixels are scaled to 0..1",
            hint="'scale=1' in it",
        )
    return PreprocessSpec(
        resize=resize,
        crop=crop,
        interpolation=_choice("interpolation", given.get("interpolation", "bilinear"), INTERPOLATIONS),
        order=order,
        scale=_number("scale", given.get("scale", "1" if is_integer else "1/255")),
        mean=mean,
        std=std,
        layout=layout,
        is_integer=is_integer,
    )


def _split(text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip().lower() for piece in part.partition("="))
        if not part.strip():
            continue
        if key not in KEYS or not equals or not value:
            near = close_match(key, KEYS)
            raise UsageError(
                f"cannot read '{part.strip()}' in --preprocess '{text}'",
                expected="KEY=VALUE with KEY one of " + ", ".join(KEYS),
                hint=f"'{near}=...'" if near and (equals or key in KEYS) else f"--preprocess '{EXAMPLE}'",
            )
        if _KEY_BEHIND_SEMICOLON.search(value):
            fixed = _KEY_BEHIND_SEMICOLON.sub(r",\1", text)
            raise UsageError(
                f"cannot read '{part.strip()}' in --preprocess",
                expected="commas between keys, semicolons between the values of one",
                hint=f"--preprocess '{fixed}'",
            )
        if key in given:
            raise UsageError(f"--preprocess gives '{key}' twice", got=text)
        given[key] = value
    return given


def _picture_input(spec: TensorSpec, layout: str | None) -> tuple[str, int, Size | None]:
    """Layout, channels and (height, width) that the input wants; the size is None when it is free."""
    if spec.shape is None or len(spec.shape) not in (3, 4):
        raise UsageError(f"cannot feed pictures to input {spec}", expected="[N,C,H,W] or [N,H,W,C]")
    dims = spec.shape[-3:]
    if layout is None:
        layout = "nhwc" if dims[2] in (1, 3) and dims[0] not in (1, 3) else "nchw"
    _choice("layout", layout, LAYOUTS)
    channels, height, width = dims if layout == "nchw" else (dims[2], dims[0], dims[1])
    if isinstance(channels, int) and channels not in (1, 3):
        raise UsageError(
            f"cannot feed pictures to input {spec}", got=f"{channels} channels", expected="1 or 3"
        )
    size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    return layout, channels if isinstance(channels, int) else 3, size


def _choice(key: str, value: str, choices: tuple[str, ...]) -> str:
    check_choice(key, value, choices, where="in --preprocess", hint=f"'{key}={{}}'".format)
    return value


def _resize(value: str) -> int | Size:
    height, width = _size("resize", value)
    return (height, width) if "x" in value else height


def _size(key: str, value: str) -> Size:
    parts = value.split("x")
    if len(parts) > 2 or not all(part.isdecimal() and 0 < int(part) <= MAX_SIDE for part in parts):
        raise UsageError(
            f"cannot read {key}={value} in --preprocess",
            expected=f"pixels, such as {key}=224 or {key}=240x320",
        )
    return int(parts[0]), int(parts[-1])


def _number(key: str, value: str) -> float:
    top, slash, bottom = value.partition("/")
    try:
        number = float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(
            f"cannot read {key}={value} in --preprocess",
            expected="a number, or one like 1/255; mean and std one per channel too, as 0.5;0.5;0.5",
        )
    return number


def _statistics(key: str, value: str, imagenet: tuple[float, ...], channels: int) -> tuple[float, ...]:
    numbers = imagenet if value == "imagenet" else tuple(_number(key, part) for part in value.split(";"))
    if len(numbers) not in (1, channels):
        raise UsageError(
            f"cannot use {key}={value} in --preprocess",
            got=f"{len(numbers)} values",
            expected=f"1 or {channels}",
        )
    if key == "std" and 0.0 in numbers:
        raise UsageError(f"cannot divide by {key}={value} in --preprocess")
    return numbers
