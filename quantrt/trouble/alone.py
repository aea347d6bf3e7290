# SPDX-License-Identifier: Apache-2.0
"""What rounding a few layers alone does to the model's outputs: whether a suspect does harm."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.calibrate.dataset import Batch, Dataset
from quantrt.config import QuantizeConfig
from quantrt.errors import DataError
from quantrt.ir.session import ORT_ERRORS, float_session
from quantrt.model.model import Model
from quantrt.quantize.fit.fit import Fitted
from quantrt.quantize.mixed import keep_float
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.reference.metrics import mean_noise_ratio
from quantrt.reference.row_sets import row_sets

__all__ = ["Alone"]

Array = np.ndarray[Any, Any]

ROWS = 8
"""Samples per run where shapes allow."""


@dataclass
class Alone:
    """Runs a model with a few of its 8-bit layers rounded, and all others float.

    Args:
        quantized: everything that can be is 8-bit in it.
        config: what it was quantized with.
        samples: of the data that are run.
    """

    model: Model
    quantized: QuantizedModel
    config: QuantizeConfig
    data: Dataset
    samples: int
    _wanted: list[dict[str, Array]] = field(default_factory=list, init=False)

    def noise_ratio(self, nodes: Collection[str]) -> float:
        """Noise over signal power of the outputs, the mean over the floating-point ones; 0 without any.

        Raises:
            DataError: the model fails on the samples.
        """
        batches = list(self.data.batches(ROWS, self.samples))
        if not self._wanted:
            self._wanted = self._run(self.model.graph, batches)
        decisions = self.quantized.placement.decisions
        kept = {row.node: "" for row in decisions if row.is_int8 and row.node not in nodes}
        fitted = Fitted(self.quantized, "auto", {}, floats=self.model.graph)
        mixed = keep_float(fitted, kept, self.config).model
        if not self._wanted[0]:
            return 0.0
        got = self._run(write(mixed), batches)
        return mean_noise_ratio(self._wanted, got, row_sets(self.model.graph.graph))

    def _run(self, graph: ir.Model, batches: Sequence[Batch]) -> list[dict[str, Array]]:
        """The floating-point outputs, without the rows that only fill a batch up."""
        session = float_session(graph)
        names = [value.name or "" for value in graph.graph.outputs]
        found = []
        for batch in batches:
            try:
                arrays = session.run(None, dict(batch.inputs))
            except ORT_ERRORS as error:
                raise DataError("ONNX Runtime cannot run the model", got=str(error).strip()) from error
            found.append(
                {
                    name: self.data.layout.own_rows(array, batch.count)
                    for name, array in zip(names, arrays, strict=True)
                    if isinstance(array, np.ndarray) and array.dtype.kind == "f"
                }
            )
        return found
