# SPDX-License-Identifier: Apache-2.0
"""Statistics of a twin's values without a run of the twin: those of the float model, divided by channel.

    f(S^-1 V x) = S^-1 f(V x)        S = diag(s) > 0, f(a h) = a f(h) for a > 0

A value of the twin is the float model's over s, up to the last bits. The same histograms serve all twins that
divide a value alike.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.casts import not_finite
from quantrt.calibrate.dataset import Batch
from quantrt.calibrate.histogram import Histogram
from quantrt.calibrate.stats import TensorStats
from quantrt.quantize.algorithms.equalization import Scales, divided_values

__all__ = ["DividedRanges"]

Array = np.ndarray[Any, Any]


class DividedRanges:
    """Histograms of values of a float model with their channels divided, over what was seen.

    Attributes:
        names: the values.
        samples: how many were seen.
    """

    def __init__(self, graph: ir.Model, scales: Scales, among: Collection[str] | None = None) -> None:
        """Nothing seen yet.

        Args:
            scales: what the output channels of layers are divided by.
            among: the values that are wanted at most; None for all that are divided.
        """
        divided = divided_values(graph, scales)
        self._divided = {name: by for name, by in divided.items() if among is None or name in among}
        self._histograms: dict[str, Histogram] = {}
        self.names = tuple(self._divided)
        self.samples = 0

    def begin(self, batch: Batch) -> None:
        """What is seen next is of this batch."""
        self.samples += batch.count

    def see(self, name: str, values: Array) -> None:
        """Count one of the values of a batch.

        Raises:
            DataError: it is not finite.
        """
        if name not in self._divided:
            return
        scale, axis = self._divided[name]
        shape = [1] * values.ndim
        shape[axis] = -1
        bad = self._histograms.setdefault(name, Histogram()).add(values / scale.reshape(shape))
        if bad:
            raise not_finite(f"tensor '{name}'", "the calibration data", bad, values.size)

    def stats(self) -> dict[str, TensorStats]:
        """Of every value that was seen, by the name that it has in the float model."""
        return {name: TensorStats.from_histogram(found) for name, found in self._histograms.items()}
