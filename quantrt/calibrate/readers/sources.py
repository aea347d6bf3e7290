# SPDX-License-Identifier: Apache-2.0
"""Which reader a source needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quantrt.calibrate.readers.columns import (
    ArrayColumn,
    Column,
    column_records,
    npy_column,
    npz_columns,
    row_count,
)
from quantrt.calibrate.readers.functions import Loader, find_function
from quantrt.calibrate.readers.images import folder_images, image_source, preprocessed, zip_images
from quantrt.calibrate.readers.preprocess import parse_preprocess
from quantrt.calibrate.records import Array, Layout, Record, Source
from quantrt.errors import DataError, UsageError
from quantrt.ir.missing_file import nearest_file
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["Preprocess", "open_source"]

Preprocess = Callable[[npt.NDArray[np.uint8]], Array]
"""A picture uint8 [H, W, C] -> the array of one sample, with or without a batch axis."""

Specs = Sequence[TensorSpec]


def open_source(
    source: str | Path | Iterable[Any] | Callable[[], Iterable[Any]] | Mapping[str, npt.ArrayLike],
    specs: Specs,
    preprocess: str | Preprocess | None,
    labels: str | Path | None,
) -> Source:
    """The reader for `source`; see `open_dataset`."""
    if isinstance(source, (str, Path)):
        return _open_path(Path(source), specs, preprocess, labels)
    if labels is not None:
        raise UsageError("labels of arrays in memory are one of them", expected="an array named 'labels'")
    if isinstance(source, np.ndarray):
        source = {_only_input(specs, "an array without a name").name: source}
    if isinstance(source, Mapping):
        opened = _column_source(
            "arrays in memory", {n: ArrayColumn(np.asarray(a)) for n, a in source.items()}, specs
        )
    else:
        opened = _iterable_source(_iterable(source), specs)
    return opened if preprocess is None else _preprocessed(opened, specs, preprocess)


def _open_path(
    path: Path, specs: Specs, preprocess: str | Preprocess | None, labels: str | Path | None
) -> Source:
    if not path.exists() and ":" in path.name:
        return _iterable_source(Loader(str(path)), specs, str(path))
    if path.suffix == ".py":
        raise UsageError(
            f"cannot read samples from '{path}'",
            got="Python code",
            expected="the name of a function in it too",
            hint=f"{path.stem}:load_data, if that is its name; next: quantrt calibrate -h",
        )
    if not path.exists():
        raise UsageError(
            f"there is no data at '{path}'",
            expected=".npz, a folder of .npy/.npz, images, or module:function",
            hint=nearest_file(path, path.suffix),
        )
    images = (
        folder_images(path) if path.is_dir() else zip_images(path) if path.suffix.lower() == ".zip" else []
    )
    arrays = sorted(p for p in path.iterdir() if p.suffix in (".npy", ".npz")) if path.is_dir() else []
    if images and arrays:
        raise DataError(
            f"'{path}' holds both pictures and arrays",
            got=f"'{images[0]}' and '{arrays[0].name}'",
            expected="one kind",
        )
    if images:
        spec = _only_input(specs, "pictures")
        if preprocess is None:
            raise UsageError(
                f"cannot turn the pictures in '{path}' into input {spec}", hint=_preprocess_hint(spec)
            )
        return image_source(path, images, spec, _callable(preprocess, spec), labels)
    opened = _open_arrays(path, arrays, specs, labels)
    return opened if preprocess is None else _preprocessed(opened, specs, preprocess)


def _open_arrays(path: Path, files: Sequence[Path], specs: Specs, labels: str | Path | None) -> Source:
    if files:
        if labels is not None:
            raise UsageError(
                "labels of a folder of arrays are in its files", expected="an array named 'labels'"
            )
        return Source(str(path), lambda: _folder_records(files, specs), None)
    if path.suffix not in (".npy", ".npz"):
        raise DataError(
            f"there are no samples in '{path}'",
            expected=".npz, a folder of .npy/.npz files, or a folder or zip of images",
            hint="`module:function` in its place: a function that reads it and gives dicts of arrays"
            if path.is_file()
            else None,
        )
    columns = _file_columns(path, specs)
    if labels is not None:
        columns["labels"] = npy_column(Path(labels))
    return _column_source(str(path), columns, specs)


def _file_columns(path: Path, specs: Specs) -> dict[str, Column]:
    if path.suffix == ".npz":
        return dict(npz_columns(path))
    return {_only_input(specs, f"'{path}', an array without a name").name: npy_column(path)}


def _folder_records(files: Sequence[Path], specs: Specs) -> Iterator[Record]:
    layout = Layout.of(specs)
    for path in files:
        yield from column_records(_file_columns(path, specs), specs, layout, f"'{path}'")


def _column_source(name: str, columns: Mapping[str, Column], specs: Specs) -> Source:
    layout = Layout.of(specs)
    where = name if name.startswith("arrays") else f"'{name}'"
    return Source(
        name,
        lambda: column_records(columns, specs, layout, where),
        row_count(columns, specs, layout, where),
    )


def _iterable(source: Any) -> Iterable[Any]:
    """The samples of an object, or those that a function gives; of NNCF's Dataset its transformed."""
    found = source.get_inference_data() if hasattr(source, "get_inference_data") else source
    found = Loader(found) if callable(found) and not isinstance(found, Iterable) else found
    if not isinstance(found, Iterable):
        raise UsageError(
            f"cannot read samples from a {type(source).__name__}",
            expected="a path, a dict of arrays, an iterable of dicts, or a function that gives one",
            hint="a list of dicts: [{input name: array}, ...]",
        )
    return found


def _iterable_source(source: Iterable[Any], specs: Specs, where: str = "") -> Source:
    is_used = False

    def records() -> Iterator[Record]:
        nonlocal is_used
        if is_used and iter(source) is source:
            raise DataError(
                "cannot read these samples again: a generator gives them once",
                hint="a list, or an object with __iter__",
            )
        is_used = True
        for index, item in enumerate(source):
            arrays = _by_name(item, specs)
            yield Record(
                f"item {index} of the data", {name: np.asarray(array) for name, array in arrays.items()}
            )

    return Source(
        where or f"Python {type(source).__name__}", records, None, is_open=not isinstance(source, Iterator)
    )


def _by_name(item: Any, specs: Specs) -> Mapping[str, Any]:
    """The arrays of an item; one of a torch DataLoader has the inputs in order, and maybe labels behind."""
    if isinstance(item, Mapping):
        return item
    names = [spec.name for spec in specs]
    if isinstance(item, list | tuple) and item and hasattr(item[0], "shape"):
        *inputs, last = (np.ndim(part) for part in item)
        if len(item) == len(names):
            return dict(zip(names, item, strict=True))
        if len(inputs) == len(names) and last <= 1 and min(inputs) > last:
            return dict(zip([*names, "labels"], item, strict=True))
    return {_only_input(specs, "an array without a name").name: item}


def _preprocessed(opened: Source, specs: Specs, preprocess: str | Preprocess) -> Source:
    """`opened` with every uint8 picture of the only input turned into a sample."""
    spec = _only_input(specs, "pictures")
    function = _callable(preprocess, spec)

    def records() -> Iterator[Record]:
        for record in opened.records():
            image = next((record.arrays[n] for n in record.arrays if n == spec.name), None)
            image = image[0] if image is not None and image.ndim == 4 and len(image) == 1 else image
            if image is None or image.dtype != np.uint8 or image.ndim not in (2, 3):
                got = "no such array" if image is None else f"{image.dtype} {list(image.shape)}"
                raise DataError(
                    f"cannot preprocess {record.where}", got=got, expected="pictures uint8 [H,W,C]"
                )
            yield replace(
                record, arrays={**record.arrays, spec.name: preprocessed(function, image, record.where)}
            )

    return Source(opened.name, records, opened.count, is_open=opened.is_open)


def _only_input(specs: Specs, what: str) -> TensorSpec:
    if len(specs) != 1:
        raise DataError(
            f"cannot tell which input gets {what}",
            expected="arrays named " + ", ".join(spec.name for spec in specs),
        )
    return specs[0]


def _callable(preprocess: str | Preprocess, spec: TensorSpec) -> Preprocess:
    if not isinstance(preprocess, str):
        return preprocess
    return find_function(preprocess) if ":" in preprocess else parse_preprocess(preprocess, spec)


def _preprocess_hint(spec: TensorSpec) -> str:
    sizes = [dim for dim in (spec.shape or ())[1:] if isinstance(dim, int) and dim > 4]
    size = sizes[0] if sizes else 224
    return f'--preprocess "resize={size * 8 // 7},crop={size},mean=0,std=1", with its training values'
