# SPDX-License-Identifier: Apache-2.0
"""How far one array is from another. No function here has a default tolerance: callers decide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.errors import DataError
from quantrt.reference.row_sets import RowSet, in_rows_of

__all__ = [
    "Error",
    "cosine",
    "decibels",
    "in_one_shape",
    "mean_noise_ratio",
    "noise_ratio",
    "sqnr_db",
    "top1",
]

Array = np.ndarray[Any, Any]


@dataclass
class Error:
    """Running comparison of two streams of arrays, batch by batch, in float64.

    Attributes:
        signal: sum of squares of the reference.
        noise: sum of squares of the difference.
        dot, power: sum of products, and sum of squares of the other stream.
        max_abs: largest absolute difference.
        count: elements compared.

    A NaN or infinity in either stream makes `noise` one too, and it stays.
    """

    signal: float = 0.0
    noise: float = 0.0
    dot: float = 0.0
    power: float = 0.0
    max_abs: float = 0.0
    count: int = 0

    def add(self, ref: Array, got: Array) -> None:
        """Compare one more pair of arrays of one shape.

        Raises:
            DataError: the shapes differ.
        """
        if ref.shape != got.shape:
            raise DataError("cannot compare two arrays", got=f"shape {got.shape}", expected=f"{ref.shape}")
        if ref.size == 0:
            return
        a, b = ref.astype(np.float64).ravel(), got.astype(np.float64).ravel()
        with np.errstate(invalid="ignore"):  # an infinity less an infinity is NaN, and shall be
            diff = a - b
            self.signal += float(a @ a)
            self.noise += float(diff @ diff)
            self.dot += float(a @ b)
            self.power += float(b @ b)
            self.max_abs = float(np.maximum(self.max_abs, np.max(np.abs(diff))))  # NaN stays NaN
        self.count += a.size

    @property
    def noise_ratio(self) -> float:
        """Noise power over signal power; 0 for equal streams, inf for noise on a zero signal."""
        if self.noise == 0.0 or math.isnan(self.noise):
            return self.noise
        return self.noise / self.signal if self.signal else math.inf

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise in dB: 10 log10(signal / noise); inf for equal streams."""
        return decibels(self.noise_ratio)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the streams; 1 when both are zero, 0 when one is."""
        if self.signal == 0.0 or self.power == 0.0:
            return 1.0 if self.signal == self.power else 0.0
        return self.dot / math.sqrt(self.signal) / math.sqrt(self.power)


def decibels(noise_ratio: float) -> float:
    """The SQNR of noise over signal power: inf without noise, NaN as it is."""
    if noise_ratio == 0.0:
        return math.inf
    return -10.0 * math.log10(noise_ratio) if noise_ratio != math.inf else -math.inf


def mean_noise_ratio(
    ref: Iterable[Mapping[str, Array]], got: Iterable[Mapping[str, Array]], sets: Sequence[RowSet] = ()
) -> float:
    """Noise over signal power of outputs, given batch by batch: of each one over all, then their mean.

    Args:
        sets: outputs whose rows have no order of their own.

    Raises:
        DataError: two have other numbers of axes.
        ValueError: one has more batches than the other.
    """
    errors: dict[str, Error] = {}
    for wanted, found in zip(ref, got, strict=True):
        ordered = in_rows_of(wanted, found, sets)
        for name, array in wanted.items():
            errors.setdefault(name, Error()).add(*in_one_shape(array, ordered[name]))
    return float(np.mean([error.noise_ratio for error in errors.values()]))


def in_one_shape(ref: Array, got: Array) -> tuple[Array, Array]:
    """Two arrays as large as the larger of them along each axis, 0 where one has no element.

    The shape of what a detector finds depends on values: a box more or less is noise, and no error. Arrays of
    other numbers of axes stay as they are.
    """
    if ref.shape == got.shape or ref.ndim != got.ndim:
        return ref, got
    shape = tuple(map(max, ref.shape, got.shape))
    return _filled(ref, shape), _filled(got, shape)


def _filled(array: Array, shape: tuple[int, ...]) -> Array:
    large = np.zeros(shape, array.dtype)
    large[tuple(map(slice, array.shape))] = array
    return large


def _compared(ref: Array, got: Array) -> Error:
    error = Error()
    error.add(ref, got)
    return error


def sqnr_db(ref: Array, got: Array) -> float:
    """Signal to quantization noise of `got` against `ref`, in dB."""
    return _compared(ref, got).sqnr_db


def noise_ratio(ref: Array, got: Array) -> float:
    """Noise power over signal power of `got` against `ref`."""
    return _compared(ref, got).noise_ratio


def cosine(ref: Array, got: Array) -> float:
    """Cosine of the angle between two arrays of one shape."""
    return _compared(ref, got).cosine


def top1(logits: Array, labels: Array) -> float:
    """Fraction of rows whose largest logit is at the label.

    Args:
        logits: float [N, classes], N >= 1.
        labels: integer [N].

    Raises:
        DataError: the shapes do not fit.
    """
    if logits.ndim != 2 or logits.size == 0 or labels.shape != logits.shape[:1]:
        raise DataError(
            "cannot compute top1",
            got=f"logits {logits.shape} and labels {labels.shape}",
            expected="logits [N, classes] and labels [N]",
        )
    return float(np.mean(np.argmax(logits, axis=1) == labels))
