# SPDX-License-Identifier: Apache-2.0
"""What a model is calibrated and judged on."""

__all__ = ["CALIBRATION_SAMPLES", "Outputs", "Score", "Task", "rows", "same_class"]

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.tasks.inputs import Feed

CALIBRATION_SAMPLES = 300
"""As many as `nncf.quantize` takes by default; fewer where the data end earlier."""

Array = npt.NDArray[Any]
Outputs = Sequence[Array]


@dataclass(frozen=True)
class Score:
    """A model's own metric.

    Attributes:
        name: of the metric.
        values: outputs -> f64 [N], what each labelled picture or pair of sentences counts.
        figure: (values, i64 rows) -> the metric over these rows.
    """

    name: str
    values: Callable[[Outputs], Array]
    figure: Callable[[Array, Array], float]

    def of(self, outputs: Outputs) -> float:
        """The metric over all rows."""
        values = self.values(outputs)
        return self.figure(values, np.arange(len(values)))


@dataclass(frozen=True)
class Task:
    """A model and its data.

    Attributes:
        calibration: single samples.
        validation: batches, read more than once; rows of all batches together are the samples.
        sources: i64 [samples] what each sample is a view of, from 0; samples of one are not independent.
        build_validation: what `quantrt.build` gets: validation inputs with their labels, if any.
        decisions: (float outputs, outputs) -> f64 [samples] how far the decisions of each sample agree.
        score: the model's own metric; None without labels.
        note: what a reader must know about the data.
    """

    name: str
    path: Path
    calibration: list[Feed]
    validation: Iterable[Feed]
    sources: Array
    build_validation: Any
    decisions: Callable[[Outputs, Outputs], Array] | None = None
    score: Score | None = None
    note: str = ""
    is_transformer: bool = field(default=False)


def rows(arrays: dict[str, Array], size: int) -> list[Feed]:
    """Batches of `size` rows of arrays by input name; the last may be shorter."""
    count = len(next(iter(arrays.values())))
    return [
        {name: array[start : start + size] for name, array in arrays.items()}
        for start in range(0, count, size)
    ]


def same_class(ref: Outputs, got: Outputs) -> Array:
    """Whether the class with the largest logit is the same, f64 [samples]."""
    return np.asarray(ref[0].argmax(1) == got[0].argmax(1), np.float64)
