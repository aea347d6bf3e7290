# SPDX-License-Identifier: Apache-2.0
"""Times for builds that mix precisions: how fast something is here is chance."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import quantrt.mix.measure
from quantrt.assign.tables.cost_model import TimedEngine, TimedLayer
from quantrt.model.model import Model
from quantrt.tactics.candidates import Candidate
from quantrt.tactics.timing import Latency

__all__ = ["made_up_times"]

PRODUCTS = ("Conv", "Gemm", "MatMul")
FP32_MS, HALF_MS = 1.0, 0.7
CODES_MS = {"int8": 0.25, "fp8": 0.4}
"""Of one product; everything else takes none."""


@contextmanager
def made_up_times() -> Iterator[None]:
    """Products take what is said above, by the profile and by the clock."""
    build_module = importlib.import_module("quantrt.build")
    with ExitStack() as stack:
        stack.enter_context(patch.object(quantrt.mix.measure, "timed_engine", _timed_engine))
        for module in (quantrt.mix.measure, build_module):
            stack.enter_context(patch.object(module, "time_candidates", _time_candidates))
        yield


def _timed_engine(
    candidate: Candidate, model: Model, inputs: Any, *, latency_ms: float, sessions: int, watched: Any
) -> TimedEngine:
    nodes = [node for node in model.graph.graph if node.op_type in PRODUCTS]
    layers = [TimedLayer((node.name or "",), latency_ms / len(nodes)) for node in nodes]
    return TimedEngine(layers, latency_ms)


def _time_candidates(candidates: Mapping[str, Candidate], *_: Any, **__: Any) -> dict[str, Latency]:
    decisions = {
        name: [row for row in one.fitted.model.placement.decisions if row.op_type in PRODUCTS]
        for name, one in candidates.items()
        if one.fitted is not None
    }
    count = max((len(rows) for rows in decisions.values()), default=1)
    found = {}
    for name, one in candidates.items():
        codes = sum(row.is_int8 for row in decisions.get(name, ()))
        float_ms = FP32_MS if one.spec.float_precision == "fp32" else HALF_MS
        codes_ms = CODES_MS.get(one.spec.precision, 0.0)
        found[name] = Latency((float_ms * (count - codes) + codes_ms * codes,) * 32)
    return found
