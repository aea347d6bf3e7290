# SPDX-License-Identifier: Apache-2.0
"""What an engine for a GPU is predicted to take, by its kernels as they were timed alone and other engines.

    predicted(e) = floats * alone(e, floats) + codes * alone(e, codes)

The two factors are fitted to the other engines of one model (`quantrt.assign.tables.whole_engines`), each
with the sums of its own kernels. The time of the engine itself is in no prediction of it.
"""

__all__ = ["kernels_of", "predicted_ms"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quantrt.assign.tables.whole_engines import TimedKernels, fit_factors
from quantrt.model.model import Model
from quantrt.report.engine_layers.timed import timed_engine
from quantrt.runtime.executor import Executor
from quantrt.tactics.candidates import Candidate


def kernels_of(
    candidates: Mapping[str, Candidate],
    executors: Mapping[str, Executor],
    measured_ms: Mapping[str, float],
    *,
    model: Model,
    inputs: Mapping[str, np.ndarray[Any, Any]],
) -> dict[str, TimedKernels]:
    """The kernels of every open engine; those that had no rival are watched in a run of it.

    Args:
        candidates: of a build, by precision.
        executors: open ones of them, by precision.
        measured_ms: by precision.
        inputs: of one run.
    """
    return {
        name: timed_engine(
            replace(candidates[name], executor=executor), model, inputs, latency_ms=measured_ms[name]
        ).kernels
        for name, executor in executors.items()
    }


def predicted_ms(kernels: Mapping[str, TimedKernels], *, floats: str) -> dict[str, float]:
    """Milliseconds of every engine in codes, by precision: each by all of the others.

    Args:
        floats: the precision of the engine in floats; nothing is predicted without it.
    """
    if floats not in kernels:
        return {}
    found = {}
    for name, one in kernels.items():
        if name != floats:
            factors = fit_factors([other for key, other in kernels.items() if key != name])
            found[name] = factors.together_ms(one.floats_ms, one.codes_ms)
    return found
