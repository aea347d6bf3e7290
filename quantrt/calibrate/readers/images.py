# SPDX-License-Identifier: Apache-2.0
"""Pictures in a folder or in a .zip, one sample each. Nothing is ever unpacked to disk."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from quantrt.calibrate.readers.functions import failure_text
from quantrt.calibrate.readers.labels import read_labels
from quantrt.calibrate.records import Array, Record, Source
from quantrt.errors import DataError, QuantRtError
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["IMAGE_SUFFIXES", "folder_images", "image_source", "preprocessed", "zip_images"]

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
MAX_FILE_BYTES = 256 << 20
"""An uncompressed picture of 89 million pixels, the most that Pillow opens without a warning."""


def folder_images(folder: Path) -> list[str]:
    """Pictures below `folder`, sorted, as paths relative to it."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in found if not path.name.startswith("."))


def zip_images(path: Path) -> list[str]:
    """Pictures in a .zip, in the archive's order.

    Raises:
        DataError: the archive is damaged, or a member claims too many bytes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"cannot read '{path}': it is damaged or no .zip", got=str(error)) from error
    hidden = ("__MACOSX/", ".")
    found = [
        m
        for m in members
        if m.filename.lower().endswith(IMAGE_SUFFIXES) and not m.filename.startswith(hidden)
    ]
    for member in found:
        _check_size(member.filename, member.file_size)
    return [member.filename for member in found]


def image_source(
    path: Path,
    files: Sequence[str],
    spec: TensorSpec,
    preprocess: Callable[[npt.NDArray[np.uint8]], Array],
    labels: str | Path | None,
) -> Source:
    """The pictures `files` of a folder or .zip as samples of the model's only input."""
    numbers = None if labels is None else read_labels(labels, files)

    def records() -> Iterator[Record]:
        with ExitStack() as stack:
            open_file = _opener(path, stack)
            for index, name in enumerate(files):
                arrays: dict[str, Array] = {
                    spec.name: preprocessed(preprocess, _read(open_file, name), f"'{name}'")
                }
                if numbers is not None:
                    arrays["labels"] = np.asarray(numbers[index], np.int64)
                yield Record(f"'{name}' of '{path}'", arrays)

    return Source(str(path), records, len(files), is_open=False)


def preprocessed(
    preprocess: Callable[[npt.NDArray[np.uint8]], Array], image: npt.NDArray[np.uint8], where: str
) -> Array:
    """The array that a picture becomes.

    Raises:
        DataError: a function of the user's fails, or gives no array.
    """
    try:
        array = preprocess(image)
    except QuantRtError:
        raise
    except Exception as error:  # whatever it does
        raise DataError(
            f"cannot preprocess {where}",
            got=failure_text(error),
            expected=f"a function of uint8 {list(image.shape)} that gives the array of one sample",
            hint="the same with --traceback, which shows where",
        ) from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"preprocessing {where} did not give an array", got=type(array).__name__)
    return array


def _opener(path: Path, stack: ExitStack) -> Callable[[str], IO[bytes]]:
    if path.is_dir():
        return lambda name: (path / name).open("rb")
    archive = stack.enter_context(zipfile.ZipFile(path))
    return lambda name: archive.open(name)


def _read(open_file: Callable[[str], IO[bytes]], name: str) -> npt.NDArray[np.uint8]:
    """One picture as uint8 [H, W, 3], red first, turned as its EXIF says; gray ones are [H, W, 1]."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with open_file(name) as file:
            data = file.read(MAX_FILE_BYTES + 1)
        _check_size(name, len(data))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata nobody reads
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                upright = ImageOps.exif_transpose(image)
                pixels = np.asarray(upright.convert("L" if upright.mode in ("1", "L") else "RGB"), np.uint8)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise DataError(f"cannot read the picture '{name}': it is too large", got=str(error)) from error
    except (
        UnidentifiedImageError,
        OSError,
        ValueError,
        SyntaxError,
        zipfile.BadZipFile,
        RuntimeError,
    ) as error:
        raise DataError(f"cannot read the picture '{name}': it is damaged", got=str(error)) from error
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def _check_size(name: str, size_bytes: int) -> None:
    if size_bytes > MAX_FILE_BYTES:
        raise DataError(
            f"cannot read the picture '{name}': it is too large",
            got=f"{size_bytes} bytes",
            expected=f"<= {MAX_FILE_BYTES}",
        )
