# SPDX-License-Identifier: Apache-2.0
"""The accuracy of Q/DQ graphs beside the float model, both in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.assign.accuracy.checked import Checked
from quantrt.assign.accuracy.metric import Metric
from quantrt.assign.accuracy.replayed import Replayed
from quantrt.assign.accuracy.try_metric import session_run
from quantrt.device import saturates
from quantrt.errors import InternalError
from quantrt.quantize.target import Target
from quantrt.quantize.targets.onnxruntime import ORT

__all__ = ["Judge"]

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Judge:
    """Judges graphs on the same samples; the float model runs once on each, as far as its outputs fit.

    A graph for ONNX Runtime is run as a session without any option runs it. One for another runtime computes
    what its Q/DQ nodes say: on integers where sums of products are exact, in floats on a CPU where they
    saturate, for no other runtime has that.

    Args:
        floats: the float model.
        checked: the samples; there are some.
        max_drop_ratio: what is surely beyond is not measured to the end.
        on_progress: called with (samples done, samples in all or None).
    """

    def __init__(
        self,
        floats: ir.Model,
        target: Target,
        metric: Metric,
        checked: Checked,
        *,
        max_drop_ratio: float,
        on_progress: Callable[[int, int | None], None],
    ) -> None:
        self._target = target
        self._metric = metric
        self._checked = checked
        self._max_drop_ratio = max_drop_ratio
        self._on_progress = on_progress
        self._floats = Replayed(session_run(floats))

    def accuracy(self, graph: ir.Model) -> Accuracy:
        """That of one graph.

        Raises:
            ModelError, DataError: ONNX Runtime cannot run it.
        """
        is_own = self._target.name == ORT.name
        run = session_run(graph, optimize=is_own or not saturates(), keep_floats=not is_own)
        found = self._checked.measure(
            self._metric, self._floats, run, self._on_progress, max_drop_ratio=self._max_drop_ratio
        )
        if found is None:
            raise InternalError("a budget is judged on no samples")
        return found
