# SPDX-License-Identifier: Apache-2.0
"""Run one case on a device and compare as ONNX's own runner does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from onnx.backend.test.runner import Runner

from quantrt.errors import QuantRtError
from quantrt.operators.conformance.cases import Case
from quantrt.operators.conformance.skips import why_skipped
from quantrt.operators.element_types import to_numpy
from quantrt.operators.interpret import TorchGraph
from quantrt.operators.operator import Value

__all__ = ["Result", "check_case", "run_case"]


@dataclass(frozen=True)
class Result:
    """How a case went.

    Attributes:
        status: passed, failed or skipped.
        detail: why it failed or was skipped.
    """

    case: Case
    status: str
    detail: str = ""


def run_case(case: Case, device: str) -> Result:
    """The result of a case; a failure is a result, not an error."""
    reason = why_skipped(case)
    if reason is not None:
        return Result(case, "skipped", reason)
    try:
        check_case(case, device)
    except (AssertionError, QuantRtError) as error:
        return Result(case, "failed", " ".join(str(error).split()))
    return Result(case, "passed")


def check_case(case: Case, device: str) -> None:
    """Run every data set of a case.

    Raises:
        AssertionError: an output differs by more than the case allows, or in type or shape.
        QuantRtError: the case cannot be run.
    """
    graph = TorchGraph(ir.from_proto(case.model), device)
    names = [value.name for value in case.model.graph.input]
    initialized = {tensor.name for tensor in case.model.graph.initializer}
    fed = [name for name in names if name not in initialized]
    for inputs, outputs in case.data_sets:
        chosen = names if len(inputs) == len(names) else fed
        results = graph.run(dict(zip(chosen, inputs, strict=True)))
        got = [_host(results[value.name]) for value in case.model.graph.output]
        _compare(outputs, got, case)


def _compare(expected: Sequence[Any], got: Sequence[Any], case: Case) -> None:
    """ONNX's comparison; sequences element by element, which its runner cannot do for scalars."""
    assert len(expected) == len(got), f"{len(got)} outputs, expected {len(expected)}"
    for want, have in zip(expected, got, strict=True):
        if isinstance(want, list):
            assert isinstance(have, list), "a tensor, expected a sequence"
            _compare(want, have, case)
        else:
            assert have is not None, "nothing, expected a tensor"
            Runner.assert_similar_outputs([want], [have], case.rtol, case.atol)


def _host(value: Value) -> Any:
    if isinstance(value, torch.Tensor):
        return to_numpy(value)
    return [_host(item) for item in value] if isinstance(value, list) else value
