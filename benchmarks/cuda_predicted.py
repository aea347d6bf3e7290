# SPDX-License-Identifier: Apache-2.0
"""What an engine for a GPU is predicted to take, by its kernels as they were timed one by one, before it ran.

    predicted(codes) = kernels(codes) * measured(fp16) / kernels(fp16)

The same kernels are faster one behind the other in a whole engine than alone, and what they gain is learned
from the engine in fp16: it was timed first, and holds no codes.
"""

__all__ = ["kernels_ms", "predicted_ms"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quantrt.model.model import Model
from quantrt.report.timed_layers import timed_engine
from quantrt.runtime.executor import Executor
from quantrt.tactics.candidates import Candidate


def predicted_ms(
    candidates: Mapping[str, Candidate],
    executors: Mapping[str, Executor],
    measured_ms: Mapping[str, float],
    *,
    floats: str,
    model: Model,
    inputs: Mapping[str, np.ndarray[Any, Any]],
) -> dict[str, float]:
    """Milliseconds of every engine in codes, by precision.

    Args:
        candidates: of a build, by precision.
        executors: open ones of them, by precision.
        measured_ms: by precision; only that of `floats` counts.
        floats: the precision of the engine that is learned from; nothing is predicted without it.
        inputs: of one run.
    """
    if floats not in executors:
        return {}
    sums = {
        name: kernels_ms(replace(candidates[name], executor=executor), model, inputs)
        for name, executor in executors.items()
    }
    factor = measured_ms[floats] / sums[floats]
    return {name: sums[name] * factor for name in sums if name != floats}


def kernels_ms(candidate: Candidate, model: Model, inputs: Mapping[str, np.ndarray[Any, Any]]) -> float:
    """All kernels of an open candidate; those that had no rival are watched in a run of it."""
    layers = timed_engine(candidate, model, inputs, latency_ms=0.0).layers
    return sum(layer.time_ms for layer in layers)
