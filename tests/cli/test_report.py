# SPDX-License-Identifier: Apache-2.0
"""`quantrt report`: what it writes, where an engine cannot run, and how mistakes are answered."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantrt.plan.serialize import save_plan
from tests.plans import make_plan
from tests.programs import cuda_plan

Call = Callable[..., Any]

FREE = "free (float[N,S] x) => (float[N,S] y) { [relu] y = Relu(x) }"
QUICK = ("--layer-runs", "2", "--warmup-runs", "0")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: linear.qrt, for a CPU, and gpu.qrt."""
    save_plan(make_plan("onnxruntime"), tmp_path / "linear.qrt")
    save_plan(cuda_plan(), tmp_path / "gpu.qrt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def data_of(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    block = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    return dict(json.loads(block))


def test_one_engine(here: Path, quantrt_text: Callable[..., str]):
    out = quantrt_text("report", "linear.qrt", "-o", "report.html", *QUICK)
    assert "wrote report.html" in out and "2 runs" in out
    (view,) = data_of(here / "report.html")["engines"]
    assert view["name"] == "linear.qrt" and view["file_bytes"] == (here / "linear.qrt").stat().st_size
    assert view["measured"]["inputs"] == "random values, x [1, 32]"


def test_json_is_the_data_of_the_page(here: Path, quantrt_json: Call):
    data = quantrt_json("report", "linear.qrt", "-o", "report.html", "--no-run")
    assert data == data_of(here / "report.html")


def test_real_data(here: Path, quantrt_json: Call):
    np.savez(here / "x.npz", x=np.ones((3, 32), np.float32))
    data = quantrt_json("report", "linear.qrt", "-o", "report.html", "--data", "x.npz", *QUICK)
    assert data["engines"][0]["measured"]["inputs"] == "the first of x.npz, x [1, 32]"


def test_two_engines(here: Path, quantrt_json: Call):
    data = quantrt_json("report", "linear.qrt", "gpu.qrt", "-o", "report.html", "--no-run")
    assert [view["name"] for view in data["engines"]] == ["linear.qrt", "gpu.qrt"]
    assert data["aligned"]


def test_not_running_is_said(here: Path, quantrt_json: Call):
    data = quantrt_json("report", "linear.qrt", "-o", "report.html", "--no-run")
    measured = data["engines"][0]["measured"]
    assert (measured["runs"], measured["why_not"]) == (0, "the engine was not to be run (--no-run)")


def test_an_engine_that_cannot_run_here_is_described(
    here: Path, quantrt_json: Call, caplog: pytest.LogCaptureFixture
):
    from quantrt.errors import DeviceError
    from quantrt.runtime.executor import check_library

    try:
        check_library("cuda")
    except DeviceError as error:
        reason = error.message
    else:
        pytest.skip("there is a GPU, and the test's engine has no machine code")
    with caplog.at_level(logging.WARNING, "quantrt"):
        data = quantrt_json("report", "gpu.qrt", "-o", "report.html")
    assert reason in data["engines"][0]["measured"]["why_not"]
    assert {layer["name"]: layer["time_us"] for layer in data["engines"][0]["layers"]}[
        "region of pool"
    ] == 12.34


def test_free_sizes_are_not_made_up(here: Path, quantrt_json: Call):
    save_plan(make_plan("onnxruntime", FREE), here / "free.qrt")
    error = quantrt_json("report", "free.qrt", "-o", "report.html", code=2)["error"]
    assert error["hint"] == "--shape x=1x128, --data with real inputs, or --no-run"
    data = quantrt_json("report", "free.qrt", "-o", "report.html", "--shape", "x=1x7", *QUICK)
    assert data["engines"][0]["measured"]["inputs"] == "random values, x [1, 7]"


def test_an_engine_is_reported_at_the_shapes_that_it_was_timed_at(here: Path, quantrt_json: Call):
    plan = make_plan("onnxruntime", FREE)
    save_plan(replace(plan, report={**plan.report, "timed_shapes": {"x": [4, 7]}}), here / "free.qrt")
    data = quantrt_json("report", "free.qrt", "-o", "report.html", *QUICK)
    assert data["engines"][0]["measured"]["inputs"] == "random values, x [4, 7]"


def test_shapes_that_are_none_are_an_error(here: Path, quantrt_json: Call):
    plan = make_plan("onnxruntime", FREE)
    save_plan(replace(plan, report={**plan.report, "timed_shapes": {"x": "4"}}), here / "free.qrt")
    error = quantrt_json("report", "free.qrt", "-o", "report.html", code=3)["error"]
    assert "cannot read the shapes" in error["message"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("linear.qrt", "-o", "report.pdf"), 2, "cannot write 'report.pdf'"),
        (("linear.qrt", "-o", "no/report.html"), 2, "its folder does not exist"),
        (("no.qrt", "-o", "report.html"), 3, "'no.qrt'"),
        (("linear.qrt", "-o", "report.html", "--no-run", "--shape", "x=1x32"), 2, "not to be run"),
        (("linear.qrt", "-o", "report.html", "--shape", "y=1x32"), 2, "no input 'y'"),
        (("linear.qrt", "-o", "report.html", "--layer-runs", "0"), 2, "number of runs"),
    ],
)
def test_mistakes(here: Path, quantrt_json: Call, words: tuple[str, ...], code: int, message: str):
    error = quantrt_json("report", *words, code=code)["error"]
    assert message in error["message"]
    assert not (here / "report.html").exists()


def test_a_truncated_engine(here: Path, quantrt_json: Call):
    whole = (here / "linear.qrt").read_bytes()
    (here / "linear.qrt").write_bytes(whole[:-9])
    error = quantrt_json("report", "linear.qrt", "-o", "report.html", code=3)["error"]
    assert "linear.qrt" in error["message"] and error["hint"]
