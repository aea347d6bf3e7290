# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs in an engine's header: scales and layouts too, and rows that make no sense."""

from dataclasses import replace

import pytest

from quantrt.ir.tensor_spec import TensorSpec
from quantrt.plan.header import header_of, plan_from_header
from tests.plans import make_plan

CODES = TensorSpec("x", "int8", ("N", 8, 8, 3), 0.125, "nhwc")


@pytest.fixture(scope="module")
def plan():
    return make_plan("onnxruntime", "net (float[N,2] x) => (float[N,2] y) { y = Relu(x) }", {})


def test_there_and_back(plan):
    bound = replace(plan, inputs=(CODES,), outputs=(TensorSpec("y", "float16", None),))
    header = header_of(bound)
    assert header["inputs"] == [["x", "int8", ["N", 8, 8, 3], 0.125, "nhwc"]]
    assert header["outputs"] == [["y", "float16", None]]
    again = plan_from_header(header, plan.model)
    assert (again.inputs, again.outputs) == (bound.inputs, bound.outputs)


@pytest.mark.parametrize(
    "row",
    [
        ["x", "int8", ["N"], 0.0, ""],
        ["x", "int8", ["N"], "0.5", ""],
        ["x", "int8", ["N"], float("inf"), ""],
        ["x", "int8", ["N"], 0.5, 3],
        ["x", "int8", ["N"], 0.5, "nhwcc"],
        ["x", "int8", ["N"], 0.5],
    ],
)
def test_rows_that_make_no_sense(plan, row):
    with pytest.raises((TypeError, ValueError)):
        plan_from_header({**header_of(plan), "inputs": [row]}, plan.model)
