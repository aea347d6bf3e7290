# SPDX-License-Identifier: Apache-2.0
"""What `inspect` says of an engine for a GPU, on a machine that has none."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quantrt.cli.json_text import json_text
from quantrt.errors import ModelError
from quantrt.plan.plan import ExecOptions
from quantrt.plan.program_json import program_to_model
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.report.engine_layers.program import COSTLY_ROWS, describe_program, node_tactics, show_program
from quantrt.report.inspect.engine import describe_engine, show_engine
from tests.programs import NOTES, cuda_plan, node_step, pooled_program, region_note

MEMORY = {"memory_after_bytes": 1_000_000, "memory_before_bytes": 3_000_000, "pool_bytes": 0}
REPORT = {
    "verdict": {"shipped": "cuda int8+fp16"},
    "candidates": [{"name": "cuda fp32", "memory": None}, {"name": "cuda int8+fp16", "memory": MEMORY}],
}


def described(path: Path, **fields: object) -> dict[str, object]:
    save_plan(cuda_plan(options=ExecOptions(float_precision="fp16"), **fields), path)
    return describe_engine(load_plan(path), path)


def test_every_region_with_its_tactic(tmp_path: Path):
    data = described(tmp_path / "m.qrt")
    assert json.loads(json_text(data)) == data
    program = data["program"]
    assert [(row["name"], row["formula"], row["precision"]) for row in program["regions"]] == [
        ("region of pool", "Conv", "int8"),
        ("region of shape", "host", None),
        ("region of flat", "view", None),
        ("region of soft", "Rows", "fp16"),
    ]
    assert program["regions"][0] == {
        "name": "region of pool",
        "formula": "Conv",
        "nodes": ["pool", "relu"],
        "precision": "int8",
        "computes_in": "int8",
        "runners": ["nodes"],
        "tactic": "triton: conv2d 64x32",
        "median_us": 12.34,
        "origin": "timed",
    }
    assert program["kernels"] == {"count": 1, "bytes": 2000, "capabilities": [80, 90]}
    assert program["mismatches"] == [
        {"pattern": "epilogue", "reason": "its result is used twice", "node": "pool"}
    ]
    assert (program["compile_s"], program["timing_s"]) == (1.5, 2.5)


def test_the_text_names_the_gpu_the_tactics_and_the_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data = described(tmp_path / "m.qrt")
    show_engine({**data, "report": {}}, layers=True)
    out = capsys.readouterr().out
    for part in (
        "NVIDIA Test 9, 80 GB, driver 570.1",
        "triton: conv2d 64x32   12.3   timed",
        "14.3 us together, of 1 cached, 1 timed",
        "2 kB of machine code for sm_80, sm_90",
        "its result is used twice",
        "2 kernels were not compiled",
    ):
        assert part in out
    assert "activations" not in out
    assert max(map(len, out.splitlines()[1:])) <= 110


def test_memory_is_that_of_the_candidate_that_was_shipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    data = described(tmp_path / "m.qrt", report=REPORT)
    for name in ("verdict_table", "candidates_table", "reason_text"):  # these want a whole report
        monkeypatch.setattr(f"quantrt.report.inspect.engine.{name}", lambda *rest: "")
    show_engine({**data, "report": {**REPORT, "notes": [], "calibration": None}})
    out = capsys.readouterr().out
    assert "1 MB in one arena, 3 MB if each had its own" in out
    assert "not fused as" not in out, "only with --layers"


def test_of_many_regions_the_longest_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    names = [f"n{i}" for i in range(COSTLY_ROWS + 3)]
    steps = tuple(replace(node_step("nodes", [name], ["x"], ["y"]), region=name) for name in names)
    rows = {
        name: region_note(formula="Rows", tactic="torch", median_us=None if i == 5 else float(i))
        for i, name in enumerate(names)
    }
    program = pooled_program("float16", steps=steps, notes={"regions": rows, "mismatches": []})
    data = described(tmp_path / "m.qrt", model=program_to_model(program))
    show_engine(data)
    out = capsys.readouterr().out
    shown = [line.split()[0] for line in out.splitlines() if line.startswith("n") and "Rows" in line]
    assert shown == [name for name in reversed(names) if name != "n5"][:COSTLY_ROWS]
    assert "and 3 more" in out


def test_weights_that_are_held_as_codes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    codes = np.arange(-127, 128).repeat(40).reshape(40, -1).astype(np.float16)
    path = tmp_path / "m.qrt"
    for weight, coded_bytes in ((codes, 10_204), (np.sqrt(np.abs(codes)), 0)):
        data = described(path, model=program_to_model(pooled_program("float16", weights={"w": weight})))
        assert data["program"]["coded_weight_bytes"] == coded_bytes
        assert data["program"]["weight_bytes"] == (coded_bytes or 20_400)
        show_engine(data)
        told = "10.2 kB of them codes that are multiplied as floats" in capsys.readouterr().out
        assert told == (coded_bytes > 0)


def test_a_program_without_notes_is_described_by_its_steps():
    data = describe_program(program_to_model(pooled_program()), "fp32")
    assert [row["formula"] for row in data["regions"]] == ["nodes", "host", "view", "nodes"]
    assert [row["precision"] for row in data["regions"]] == ["fp32", None, None, "fp32"]
    assert data["mismatches"] == []
    assert node_tactics(program_to_model(pooled_program())) == {}


def test_nodes_are_told_what_computes_them():
    model = program_to_model(pooled_program(notes=NOTES))
    assert node_tactics(model) == {
        "pool": "triton: conv2d 64x32, 12.3 us (region 'region of pool' of 2 nodes)",
        "relu": "triton: conv2d 64x32, 12.3 us (region 'region of pool' of 2 nodes)",
        "soft": "triton: rows 1x256, 2.0 us (a region of its own)",
    }


def test_a_damaged_program_is_said_to_be_one(tmp_path: Path):
    model = replace(program_to_model(pooled_program()), graph=b"[]")
    with pytest.raises(ModelError, match="cannot use the program"):
        describe_program(model, "fp16")


def test_profiles_are_written_as_they_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    profile = {"x": [[1, 3, 4, 4], [8, 3, 4, 4], [32, 3, 4, 4]], "n": [[], [], []]}
    program = pooled_program("float16", notes={**NOTES, "profiles": [profile]})
    show_engine(described(tmp_path / "m.qrt", model=program_to_model(program)))
    assert "shapes   n=::,x=1x3x4x4:8x3x4x4:32x3x4x4" in capsys.readouterr().out


@pytest.mark.parametrize(
    "tactic", ["cudnn: convolution dequantized", "triton: conv2d phases in halves windows 1x8x8 64x128 s5"]
)
def test_codes_that_are_computed_with_in_floats_are_called_so(
    tactic: str, capsys: pytest.CaptureFixture[str]
):
    row = region_note(formula="Conv", is_int8=True, tactic=tactic, median_us=3.0)
    notes = {"regions": {"region of pool": row}, "mismatches": []}
    data = describe_program(program_to_model(pooled_program(notes=notes)), "fp16")
    found = data["regions"][0]
    assert (found["precision"], found["computes_in"]) == ("int8", "fp16")
    show_program(data, None, layers=False)
    assert "int8 in fp16" in capsys.readouterr().out
