# SPDX-License-Identifier: Apache-2.0
"""No operator reads a value back from the device, but for those whose meaning is to.

The device is torch's "meta": it has shapes and types alone, so that reading a value is an error.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

pytest.importorskip("torch", reason="the torch operators need torch")

import torch

from quantrt.errors import QuantRtError
from quantrt.operators.conformance.cases import Case, load_cases
from quantrt.operators.conformance.skips import why_skipped
from quantrt.operators.element_types import from_numpy
from quantrt.operators.interpret import TorchGraph
from quantrt.operators.numbers import NUMBERS

READERS = {
    "Compress",
    "If",
    "Loop",
    "NonMaxSuppression",
    "NonZero",
    "RoiAlign",
    "SequenceInsert",
    "SequenceMap",
    "Unique",
}
"""Operators whose course or result depends on values, or that are computed on the host."""

SIZES_ARE_INPUTS = (
    "test_affine_grid_2d",
    "test_affine_grid_3d",
    "test_blackmanwindow",
    "test_center_crop_pad",
    "test_hammingwindow",
    "test_hannwindow",
)
"""Functions of other operators whose size is an input of the case, and would be a host value in a model."""


def is_in_scope(case: Case) -> bool:
    has_odd_inputs = any(not isinstance(x, np.ndarray) for inputs, _ in case.data_sets for x in inputs)
    is_sized = case.name.startswith(SIZES_ARE_INPUTS)
    return why_skipped(case) is None and not has_odd_inputs and not is_sized and not case.operators & READERS


def run_without_values(case: Case) -> None:
    graph = ir.from_proto(case.model)
    numbers = {
        node.inputs[place].name
        for node in graph.graph
        for place in NUMBERS.get(node.op_type, ())
        if place < len(node.inputs) and node.inputs[place] is not None
    }
    initialized = {tensor.name for tensor in case.model.graph.initializer}
    names = [value.name for value in case.model.graph.input if value.name not in initialized]
    cpu = torch.device("cpu")
    given: dict[str, Any] = {}
    for name, array in zip(names, case.data_sets[0][0], strict=False):
        tensor = from_numpy(array, cpu)
        given[name] = tensor if name in numbers else tensor.to("meta")
    TorchGraph(graph, "meta", numbers_on_host=True).run(given)


@pytest.mark.slow
def test_values_stay_on_the_device():
    cases = [case for case in load_cases() if is_in_scope(case)]
    assert len(cases) > 1500
    failed = []
    for case in cases:
        try:
            run_without_values(case)
        except (QuantRtError, RuntimeError, NotImplementedError) as error:
            failed.append(f"{case.name}: {error}")
    assert not failed, "\n".join(failed)
