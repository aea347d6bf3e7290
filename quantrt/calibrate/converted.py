# SPDX-License-Identifier: Apache-2.0
"""Samples of a model as its engine takes them, where that has other element types or layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quantrt.calibrate.casts import check_finite, int8_codes, numpy_dtype
from quantrt.calibrate.dataset import Dataset, random_dataset
from quantrt.calibrate.records import Array, Sample
from quantrt.errors import DataError
from quantrt.ir.layout import layout_of
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["Converted", "as_bound", "bound_inputs", "converted", "given_outputs"]

Convert = Callable[[str, Array], Array]
"""One input's array of a sample, by its name, in another form."""


class Converted(Dataset):
    """A dataset whose inputs are converted sample by sample, as they are read.

    Args:
        specs: of the inputs after the conversion.
    """

    def __init__(self, inner: Dataset, specs: Sequence[TensorSpec], convert: Convert) -> None:
        super().__init__(inner._source, specs, is_random=inner.is_random)
        self._inner = inner
        self._convert = convert

    @property
    def notes(self) -> tuple[str, ...]:
        """See Dataset."""
        return self._inner.notes

    def records(self) -> Iterator[Sample]:
        """Every sample in order, each alone: what is converted is held in two forms.

        Raises:
            DataError: a value cannot be had in the other form; or as for Dataset.
        """
        for sample in self._inner.samples():
            yield Sample(
                {name: self._convert(name, array) for name, array in sample.inputs.items()}, sample.labels
            )


def converted(
    data: Dataset | None, specs: Sequence[TensorSpec], convert: Convert, seed: int
) -> Dataset | None:
    """The samples in another form; random ones are made anew, for their values mean nothing."""
    if data is None:
        return None
    if data.is_random and data.sample_count is not None:
        return random_dataset([_of_same_size(spec, data) for spec in specs], data.sample_count, seed)
    return Converted(data, specs, convert)


def _of_same_size(spec: TensorSpec, data: Dataset) -> TensorSpec:
    """With the sizes that were made up for the input, where its axes are in the same order."""
    sizes = {known.name: known.shape for known in data._specs if known.layout == spec.layout}
    return replace(spec, shape=sizes.get(spec.name, spec.shape))


def as_bound(array: Array, spec: TensorSpec, where: str) -> Array:
    """An array of a model's input in the element type of its engine's.

    Raises:
        DataError: a value is not to be had in that type.
    """
    dtype = numpy_dtype(spec.dtype)
    if array.dtype == dtype:
        return array
    if spec.scale is not None:
        return int8_codes(array, spec.scale)
    with np.errstate(over="ignore", invalid="ignore"):
        found: np.ndarray[Any, Any] = array.astype(dtype)
    if dtype.kind in "iub" and not np.array_equal(found.astype(array.dtype), array):
        raise DataError(
            f"{where} cannot be given as {spec.dtype}",
            got=f"values from {array.min()} to {array.max()}",
            expected="whole numbers that it holds" if dtype.kind in "iu" else "0 and 1",
            hint="a model that scales its input itself, for a uint8 of 0 to 255"
            if dtype == np.uint8
            else None,
        )
    check_finite(found, f"input '{spec.name}'", f"{where}, as {spec.dtype}")
    return found


def bound_inputs(arrays: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """The inputs of a model, as its engine takes them.

    Args:
        specs: the engine's inputs.

    Raises:
        DataError: a value is not to be had in the engine's type.
    """
    found = dict(arrays)
    for spec in specs:
        layout = layout_of(spec)
        if spec.name in found and spec.dtype != "string":
            array = found[spec.name] if layout is None else layout.to_memory_array(found[spec.name])
            found[spec.name] = as_bound(array, spec, f"a sample of input '{spec.name}'")
    return found


def given_outputs(arrays: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """The outputs of an engine, as its model gives them: axes in order, codes as floats, halves as they are.

    Args:
        specs: the engine's outputs.
    """
    found = dict(arrays)
    for spec in specs:
        layout = layout_of(spec)
        if spec.name in found and layout is not None:
            found[spec.name] = layout.to_model_array(found[spec.name])
        if spec.name in found and spec.scale is not None:
            found[spec.name] = found[spec.name].astype(np.float32) * np.float32(spec.scale)
    return found
