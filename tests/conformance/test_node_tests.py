# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend tests on the CPU; `python -m quantrt.operators.conformance` runs them on any device."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.backend.test.loader import load_model_tests

pytest.importorskip("torch", reason="the torch operators need torch")

from quantrt.errors import DeviceError
from quantrt.operators.conformance.__main__ import main
from quantrt.operators.conformance.cases import Case, load_cases
from quantrt.operators.conformance.run import check_case, run_case
from quantrt.operators.conformance.scope import EXPANDED, REQUIRED
from quantrt.operators.conformance.skips import SKIPS, why_skipped
from quantrt.operators.element_types import to_numpy
from quantrt.operators.interpret import TorchGraph
from quantrt.operators.table import OPERATORS, find_operator

CASES = load_cases()
RUN = [case for case in CASES if why_skipped(case) is None]
MAX_SKIPPED_RATIO = 0.03


@pytest.mark.parametrize("case", RUN, ids=[case.name for case in RUN])
def test_case(case: Case):
    check_case(case, "cpu")


def test_names_are_unique():
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_skip_names_a_case():
    assert set(SKIPS) <= {case.name for case in CASES}


def test_few_cases_of_the_required_operators_are_skipped():
    """Of all that the onnx package carries, also those that have another operator beside them."""
    required = [case for case in CASES if case.operators & set(REQUIRED)]
    assert len(required) > 1700
    assert sum(why_skipped(case) is not None for case in required) <= MAX_SKIPPED_RATIO * len(required)
    node = [case for case in required if case.kind == "node"]
    assert len(node) > 1600
    assert sum(why_skipped(case) is not None for case in node) <= MAX_SKIPPED_RATIO * len(node)


def test_no_case_of_a_required_operator_is_left_out():
    """What onnx's own loader finds is here, by name."""
    here = {case.name for case in CASES}
    missing = []
    for test in load_model_tests(kind="node"):
        nodes = () if test.model is None else test.model.graph.node
        if {node.op_type for node in nodes} & set(REQUIRED) and test.name not in here:
            missing.append(test.name)
    assert missing == []


def test_a_case_that_is_left_out_by_a_rule_says_so():
    reasons = {case.name: why_skipped(case) for case in CASES}
    assert "FlexAttention" in (reasons["test_flexattention_score_mod"] or "")
    assert "opset 6" in (reasons["test_operator_add_broadcast"] or "")


@pytest.mark.parametrize("operator", REQUIRED)
def test_every_required_operator_has_rows_and_a_case(operator: str):
    assert operator in {row.op_type for row in OPERATORS}
    assert any(operator in case.operators for case in RUN)


def test_every_row_has_a_case():
    """So that no version of an operator goes untested."""
    tested = {
        find_operator(operator, case.opset, node=case.name)
        for case in RUN
        for operator in case.operators - set(EXPANDED)
    }
    assert [(row.op_type, row.since) for row in OPERATORS if row not in tested] == []


@pytest.mark.parametrize("name", ["test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"])
def test_half_precision_attention_is_as_near_to_float64_as_onnx_is(name: str):
    """The two results differ by a unit in the last place; ours is the nearer one to float64."""
    (case,) = [case for case in CASES if case.name == name]
    (exact_case,) = [case for case in CASES if case.name == "test_attention_4d_causal"]
    ((inputs, expected),) = case.data_sets
    names = [value.name for value in case.model.graph.input]
    got = to_numpy(TorchGraph(ir.from_proto(case.model)).run(dict(zip(names, inputs, strict=True)))["Y"])
    exact_model = onnx.ModelProto()
    exact_model.CopyFrom(exact_case.model)
    for value in (*exact_model.graph.input, *exact_model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    wide = [array.astype(np.float64) for array in inputs]
    exact = to_numpy(TorchGraph(ir.from_proto(exact_model)).run(dict(zip(names, wide, strict=True)))["Y"])
    ulp = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
    ours = np.abs(got.astype(np.float64) - exact) / ulp
    theirs = np.abs(expected[0].astype(np.float64) - exact) / ulp
    assert ours.max() <= theirs.max()
    assert ours.mean() <= theirs.mean()


def test_a_wrong_answer_fails():
    (case,) = [case for case in CASES if case.name == "test_relu"]
    ((inputs, (output,)),) = case.data_sets
    wrong = Case(case.name, case.kind, case.model, [(inputs, [output + 0.01])], case.rtol, case.atol)
    assert run_case(wrong, "cpu").status == "failed"


def test_the_command_prints_and_saves_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "report.json"
    assert main(["--only", "test_relu", "--json", str(path)]) == 0
    assert "Relu" in capsys.readouterr().out
    report = json.loads(path.read_text())
    assert {case["status"] for case in report["cases"]} == {"passed"}


def test_the_command_knows_its_devices(capsys: pytest.CaptureFixture[str]):
    assert main(["--only", "test_relu", "--device", "nonsense"]) == DeviceError.exit_code
    assert "torch has no device 'nonsense'" in capsys.readouterr().err
