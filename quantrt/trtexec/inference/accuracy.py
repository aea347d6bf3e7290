# SPDX-License-Identifier: Apache-2.0
"""Losses of outputs against references, as trtexec 11 defines them for --accuracyAlgorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quantrt.errors import DataError
from quantrt.reference.metrics import cosine
from quantrt.trtexec.flags.run_settings import RunSettings

__all__ = ["Loss", "loss_of"]


@dataclass(frozen=True)
class Loss:
    """Of one output.

    Attributes:
        pair: number of the inputs and references.
        value: NaN, which never passes, where an output or a reference is.
    """

    pair: int
    output: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether it is within the limit."""
        return self.value <= self.limit

    def __str__(self) -> str:
        word = "passed" if self.passed else "FAILED"
        return (
            f"{self.output} (pair {self.pair}): loss = {self.value:.6g}, threshold = {self.limit:.6g}: {word}"
        )


def loss_of(ref: np.ndarray, got: np.ndarray, settings: RunSettings) -> float:
    """The loss of one output, 0 for equal ones.

    l0: share of elements with |got - ref| > atol + rtol |ref|; l1: mean of |got - ref|; l2: mean of its
    square; lInf: its largest; cos: 1 - cosine of the angle between the two.

    Raises:
        DataError: the shapes differ.
    """
    if ref.shape != got.shape:
        raise DataError("cannot compare an output", got=f"shape {got.shape}", expected=f"{ref.shape}")
    if ref.size == 0:
        return 0.0
    wanted, found = ref.astype(np.float64), got.astype(np.float64)
    with np.errstate(invalid="ignore"):  # an infinity less an infinity is NaN, and shall be
        difference = np.abs(found - wanted)
        if np.isnan(difference).any():
            return math.nan
        if settings.algorithm == "l0":
            return 1.0 - float(np.mean(difference <= settings.atol + settings.rtol * np.abs(wanted)))
        if settings.algorithm == "l1":
            return float(np.mean(difference))
        if settings.algorithm == "l2":
            return float(np.mean(difference**2))
        if settings.algorithm == "lInf":
            return float(np.max(difference))
        return 1.0 - cosine(wanted, found)
