# SPDX-License-Identifier: Apache-2.0
"""A survey as data and as text."""

import json
from dataclasses import replace

import pytest

from quantrt.gpu import GpuFacts, gpu_named
from quantrt.regions.expression import Expression
from quantrt.regions.region import Gemm, Mismatch, Nodes, Region, Rows, View

survey = pytest.importorskip("quantrt.tactics.cuda.survey")


def region(name: str, formula: object) -> Region:
    return Region(name, formula, (name,), ("x",), ("y",))


EXPRESSION = Expression((), (), (), ())
GEMM = Gemm(("n", 0), ("n", 1), "w", is_transposed=True, epilogue=EXPRESSION)
ROWS = Rows(EXPRESSION)


def found_on(gpu: GpuFacts, *, falls_back: bool) -> tuple[GpuFacts, tuple[object, ...]]:
    from quantrt.tactics.cuda.tactic import Draft, Rejected, Tactic

    tactics = tuple(
        Tactic(source, name, (Draft("gemm", (), ()),)) for source, name in (("triton", "a"), ("triton", "b"))
    )
    rejected = (Rejected("triton", "gemm", "needs 8.0"),) if falls_back else ()
    rows = (
        survey.Finding(
            region("dense", GEMM),
            "int8",
            () if falls_back else tactics,
            rejected,
            "triton: needs 8.0" if falls_back else "",
        ),
        survey.Finding(region("flat", View()), "", (), (), ""),
        survey.Finding(region("norm", ROWS), "fp16", tactics, (), ""),
        survey.Finding(region("pool", Nodes()), "fp16", (), (), "torch runs it operator by operator"),
    )
    return gpu, rows


@pytest.fixture
def both() -> object:
    rows = (found_on(gpu_named("t4"), falls_back=True), found_on(gpu_named("h200"), falls_back=False))
    return survey.Survey(rows, (Mismatch("epilogue", "read twice", "dense"),))


def describe(found: object) -> dict:
    from quantrt.report.check.survey import describe_survey

    return describe_survey(found, path="m.onnx", precision="int8", shapes={"x": (1, 64)})


def test_data(both):
    data = describe(both)
    assert json.loads(json.dumps(data)) == data
    t4, h200 = data["devices"]
    assert t4["gpu"]["name"] == "T4"
    assert t4["summary"] == {
        "regions": 4,
        "int8": 1,
        "int8_with_kernel": 0,
        "fp8": 0,
        "fp8_with_kernel": 0,
        "float": 1,
        "float_with_kernel": 1,
        "in_torch": 1,
    }
    assert h200["summary"]["int8_with_kernel"] == 1
    [dense, flat, norm, pool] = t4["regions"]
    assert dense["falls_back"]
    assert dense["rejected"] == [{"source": "triton", "name": "gemm", "reason": "needs 8.0"}]
    assert not flat["falls_back"]
    assert not norm["falls_back"]
    assert pool["reason"] == "torch runs it operator by operator"
    assert h200["regions"][0]["legal"] == [{"source": "triton", "name": n} for n in "ab"]
    assert data["mismatches"] == [{"pattern": "epilogue", "reason": "read twice", "node": "dense"}]


def test_several_gpus_are_a_line_each(both, capsys: pytest.CaptureFixture[str]):
    from quantrt.report.check.survey import show_survey

    show_survey(describe(both))
    out = capsys.readouterr().out
    assert "m.onnx in int8: x 1x64" in out
    [t4] = [line for line in out.splitlines() if line.startswith("T4")]
    assert "0 of 1" in t4
    assert t4.endswith("triton: needs 8.0")
    assert "1 fusion did not happen" in out


def test_one_gpu_is_shown_region_by_region(both, capsys: pytest.CaptureFixture[str]):
    from quantrt.report.check.survey import show_survey

    for name, says in (("T4", "falls back to torch [1]"), ("H200", "triton 2")):
        data = describe(both)
        show_survey({**data, "devices": [row for row in data["devices"] if row["gpu"]["name"] == name]})
        out = capsys.readouterr().out
        [dense] = [line for line in out.splitlines() if line.startswith("dense")]
        assert says in dense
        assert not any(line.startswith("flat") for line in out.splitlines())
        assert ("[1]  triton: needs 8.0" in out) is (name == "T4")
        assert "1 of 1 float regions have a kernel; 1 region runs in torch" in out


def test_codes_of_both_kinds_are_counted(both, capsys: pytest.CaptureFixture[str]):
    from quantrt.report.check.survey import show_survey

    ((gpu, rows),) = both.findings[1:]
    mixed = (*rows, replace(rows[0], region=region("second", GEMM), precision="fp8"))
    show_survey(describe(survey.Survey(((gpu, mixed),), ())))
    out = " ".join(capsys.readouterr().out.split())
    assert "1 of 1 int8 regions, 1 of 1 fp8 regions and 1 of 1 float regions have a kernel" in out
    show_survey(describe(survey.Survey(((gpu, mixed), (gpu, rows)), ())))
    assert "int8 kernels fp8 kernels float kernels" in " ".join(capsys.readouterr().out.split())
