# SPDX-License-Identifier: Apache-2.0
"""From what a reader found to samples that can be fed to the model as they are.

A reader yields records: arrays by input name, with or without a batch axis. Here a record is checked
against the model's inputs, and cast where that loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from quantrt.calibrate.casts import cast_array
from quantrt.errors import DataError, close_match
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["LABEL_NAMES", "Arrays", "Layout", "Record", "Sample", "Source", "check_names", "read_record"]

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

CHANNELS = {(0, 2, 3, 1): "last", (0, 3, 1, 2): "first"}
"""Axes of pictures that are turned, and where the channels are then."""
LABEL_NAMES = ("labels", "label", "y", "targets")
"""Arrays of these names are labels unless the model has such an input; all of them become "labels"."""

HOW_TO_GET = {
    "token_type_ids": "`tokenizer(..., return_token_type_ids=True)`, or zeros shaped as 'input_ids'",
    "attention_mask": "`tokenizer(..., return_attention_mask=True)`, or ones shaped as 'input_ids'",
}
"""Inputs that tokenizers of transformers leave out for some models."""


@dataclass(frozen=True)
class Layout:
    """What the first axis of the model's inputs means.

    Attributes:
        is_batched: axis 0 of every input counts samples: it is symbolic in all of them, or one same size.
            Otherwise a sample is a whole set of inputs and runs alone.
        fixed_batch: the size the model insists on; None for any.
    """

    is_batched: bool
    fixed_batch: int | None = None

    @classmethod
    def of(cls, specs: Sequence[TensorSpec]) -> Layout:
        """The layout of a model's inputs."""
        leading = {_leading(spec) for spec in specs}
        if leading == {None}:
            return cls(is_batched=True)
        if len(leading) == 1 and isinstance(size := leading.pop(), int) and size > 0:
            return cls(is_batched=True, fixed_batch=size)
        return cls(is_batched=False)

    def own_rows(self, array: Array, count: int) -> Array:
        """An output for `count` samples, without the rows that only pad a batch to the size insisted on."""
        is_padded = self.fixed_batch not in (None, count) and array.ndim and len(array) == self.fixed_batch
        return array[:count] if is_padded else array


@dataclass(frozen=True)
class Record:
    """Something a reader found: one sample or several.

    Attributes:
        where: how to name it in a message, such as "sample 3 of 'calib.npz'".
        arrays: by name, inputs and labels.
    """

    where: str
    arrays: Arrays


@dataclass(frozen=True)
class Source:
    """Where records come from.

    Attributes:
        name: what to call it in messages.
        records: starts reading from the beginning.
        count: number of samples; None when that takes reading.
        is_open: values may be anything, and can be read again: no pictures, whose pixels have bounds, and
            nothing that is read once.
    """

    name: str
    records: Callable[[], Iterator[Record]]
    count: int | None
    is_open: bool = True


@dataclass(frozen=True)
class Sample:
    """One sample, or several of one shape, ready to be fed.

    Attributes:
        inputs: shaped as the model's inputs, with their number at axis 0 where that is a batch axis.
        labels: with the same leading axis.
        count: how many; 1 where there is no batch axis.
    """

    inputs: dict[str, Array]
    labels: dict[str, Array] = field(default_factory=dict)
    count: int = 1

    def rows(self, first: int, last: int) -> Sample:
        """Some of several, without a copy."""
        if (first, last) == (0, self.count):
            return self
        inputs, labels = (
            {name: array[first:last] for name, array in arrays.items()}
            for arrays in (self.inputs, self.labels)
        )
        return Sample(inputs, labels, last - first)


def read_record(record: Record, specs: Sequence[TensorSpec], layout: Layout, notes: set[str]) -> Sample:
    """All samples of one record.

    Args:
        notes: gets a line per kind of cast.

    Raises:
        DataError: a name, shape, element type or value does not fit.
    """
    inputs, labels = check_names(record.arrays, specs, record.where)
    fed: dict[str, Array] = {}
    for spec in specs:
        array = _with_batch_axis(np.asarray(inputs[spec.name]), spec, layout)
        _check_shape(array, spec, layout, record.where)
        fed[spec.name] = cast_array(array, spec, record.where, notes)
    if not layout.is_batched:
        return Sample(fed, {name: np.asarray(label)[None] for name, label in labels.items()})
    rows = _row_count(fed, record.where)
    label_rows = {name: _label_rows(np.asarray(label), rows, record.where) for name, label in labels.items()}
    return Sample(fed, label_rows, rows)


def check_names(
    arrays: Mapping[str, Any], specs: Sequence[TensorSpec], where: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and labels of a record; the only array is the only input, whatever its name.

    Raises:
        DataError: an input is missing or a name is unknown; suggests the nearest.
    """
    names = [spec.name for spec in specs]
    inputs = {name: array for name, array in arrays.items() if name in names}
    extra = {name: array for name, array in arrays.items() if name not in names}
    labels = {name: extra.pop(name) for name in LABEL_NAMES if name in extra}
    if len(labels) == 1:
        labels = {"labels": next(iter(labels.values()))}
    missing = [name for name in names if name not in inputs]
    if len(names) == len(missing) == len(extra) == 1:
        return {names[0]: next(iter(extra.values()))}, labels
    for name in extra:
        near = close_match(name, missing or names)
        raise DataError(
            f"the model has no input '{name}', which {where} gives",
            expected=", ".join(names),
            hint=f"naming it '{near}'" if near else f"the same without '{name}'",
        )
    if missing:
        raise DataError(
            f"{where} lacks the input '{missing[0]}'",
            got=", ".join(arrays) or "nothing",
            expected=", ".join(names),
            hint=HOW_TO_GET.get(missing[0]),
        )
    return inputs, labels


def _leading(spec: TensorSpec) -> int | str | None:
    """Size of axis 0; None when it is free; "none" without such an axis."""
    if spec.shape is None:
        return None
    if not spec.shape:
        return "none"
    return spec.shape[0] if isinstance(spec.shape[0], int) else None


def _with_batch_axis(array: Array, spec: TensorSpec, layout: Layout) -> Array:
    one_short = layout.is_batched and spec.shape is not None and array.ndim == len(spec.shape) - 1
    return array[None] if one_short else array


def _check_shape(array: Array, spec: TensorSpec, layout: Layout, where: str) -> None:
    if spec.shape is None:
        return
    first = 1 if layout.is_batched else 0
    fits = array.ndim == len(spec.shape) and all(
        not isinstance(want, int) or have == want
        for have, want in zip(array.shape[first:], spec.shape[first:], strict=True)
    )
    if not fits:
        raise DataError(
            f"{where} does not fit input '{spec.name}'",
            got=f"shape {list(array.shape)}",
            expected=str(spec) + (", or one axis less for a single sample" if layout.is_batched else ""),
            hint=_turned(array, spec, first),
        )


def _turned(array: Array, spec: TensorSpec, first: int) -> str | None:
    """How pictures become what the model takes, where their channels are at the other end."""
    for axes, words in CHANNELS.items():
        if spec.shape is None or array.ndim != len(axes) or len(spec.shape) != len(axes):
            continue
        turned = [array.shape[axis] for axis in axes]
        pairs = zip(turned[first:], spec.shape[first:], strict=True)
        if all(not isinstance(want, int) or have == want for have, want in pairs):
            return f"`array.transpose{axes}`: the model takes channels {words}"
    return None


def _row_count(fed: Arrays, where: str) -> int:
    rows = {name: len(array) for name, array in fed.items()}
    if len(set(rows.values())) > 1:
        raise DataError(
            f"the inputs of {where} hold different numbers of samples",
            got=", ".join(f"{name}: {count}" for name, count in rows.items()),
        )
    return next(iter(rows.values()))


def _label_rows(label: Array, rows: int, where: str) -> Array:
    if label.ndim and len(label) == rows:
        return label
    if rows == 1:
        return label[None]
    raise DataError(
        f"the labels of {where} do not match its samples",
        got=f"shape {list(label.shape)}",
        expected=f"{rows} labels",
    )
