# SPDX-License-Identifier: Apache-2.0
"""Reports of engines that run here, of plans, and of engines whose library is missing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import quantrt
from quantrt.config import LayerTimingConfig
from quantrt.errors import DataError, DeviceError, UsageError
from quantrt.gpu import BANDWIDTH_RATIO, PEAK_RATIO, gpu_named
from quantrt.plan.plan import Plan
from quantrt.report import report as report_module
from quantrt.report.explain.rows import BOUNDS
from quantrt.report.report import Report, make_report
from quantrt.runtime.engine import Engine
from tests.engine_views import made_up_report
from tests.plans import LIBRARIES, make_plan
from tests.programs import cuda_plan

QUICK = LayerTimingConfig(layer_runs=3, warmup_runs=1)
WIDE = "wide (float[N,512] x) => (float[N,512] y) { [mm] h = MatMul(x, w) [relu] y = Relu(h) }"


@pytest.fixture(params=LIBRARIES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(make_plan(request.param), name="linear") as opened:
        yield opened


def text_of(report: Report) -> str:
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(report)
    return capture.get()


@pytest.mark.parametrize("library", LIBRARIES)
def test_layers_are_timed_here(library: str, rng: np.random.Generator):
    plan = make_plan(library, WIDE, {"w": rng.standard_normal((512, 512)).astype(np.float32)})
    with Engine(plan, name="wide") as engine:
        report = make_report(engine, inputs={"x": np.ones((256, 512), np.float32)}, config=QUICK)
    assert report.layers and all(row["engine"] == "wide" for row in report.layers)
    assert sum(row["time_us"] or 0 for row in report.layers) > 0
    assert sum(row["share_ratio"] or 0 for row in report.layers) == pytest.approx(1.0)
    peaks = report.data["engines"][0]["peaks"]
    slowest = max(report.layers, key=lambda row: row["time_us"] or 0)
    assert (
        slowest["bound_by"] in BOUNDS and 0 < slowest["roof_ratio"] and "products in fp32" in slowest["cause"]
    )
    assert peaks["gops"]["fp32"] > 0 and len(peaks["gb_s"]) > 1 and "measured here" in peaks["source"]
    measured = report.data["engines"][0]["measured"]
    assert measured["runs"] == 3 and measured["inputs"] == "the given inputs, x [256, 512]"
    assert json.loads(json.dumps(report.data, allow_nan=False)) == report.data


def test_rows_are_flat(engine: Engine):
    (view,) = make_report(engine, run=False).data["engines"]
    assert view["measured"]["runs"] == 0 and view["measured"]["why_not"] == "it was not to be run"
    for row in make_report(engine, run=False).layers:
        assert {type(value) for value in row.values()} <= {str, int, float, type(None)}
        assert row["time_us"] is None and row["share_ratio"] is None


def test_own_inputs_have_to_suit(engine: Engine):
    report = make_report(engine, config=QUICK)
    assert report.data["engines"][0]["measured"]["inputs"] == "random values, x [1, 32]"
    with pytest.raises(DataError, match="'x'"):
        make_report(engine, inputs={"x": np.zeros((2, 31), np.float32)}, config=QUICK)


def test_a_path_is_told_to_be_loaded(engine: Engine):
    for sources in (("model.qrt",), (engine, "model.qrt")):
        with pytest.raises(UsageError, match="cannot report on what is no engine") as caught:
            make_report(*sources)
        assert caught.value.hint == "`quantrt.load(path)`"


def test_an_engine_for_a_gpu_is_described_from_its_plan():
    plan = cuda_plan()
    report = make_report(plan)
    view = report.data["engines"][0]
    times = {row["name"]: row["time_us"] for row in report.layers}
    assert times["region of pool"] == 12.34 and view["measured"]["why_not"] == "the engine was not opened"
    assert view["layers"][0]["built_us"] == times[view["layers"][0]["name"]]


def test_the_peaks_of_a_known_gpu_are_published_ones():
    plan = cuda_plan()
    gpu = {**plan.device["gpu"][0], "name": "NVIDIA H200"}
    peaks = make_report(replace(plan, device={**plan.device, "gpu": [gpu]})).data["engines"][0]["peaks"]
    h200 = gpu_named("H200")
    assert peaks["gops"]["int8"] == pytest.approx(h200.int8_tops * 1e3 * PEAK_RATIO)
    assert peaks["gb_s"] == [[0, pytest.approx(h200.bandwidth_gb_s * BANDWIDTH_RATIO)]]
    assert make_report(plan).data["engines"][0]["peaks"] is None  # no figures are made up for an unknown one


def test_without_its_library_the_nodes_stand_for_the_layers(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise DeviceError("cannot run a model of the library 'openvino': it is not installed here")

    monkeypatch.setattr(report_module, "engine_layers", fail)
    plan: Plan = make_plan("onnxruntime")
    report = make_report(plan)
    assert [row["name"] for row in report.layers] == [layer.name for layer in plan.layers]
    assert "not installed here: the layers are the model's nodes" in report.data["engines"][0]["notes"][-1]


def test_two_engines_are_aligned(engine: Engine):
    report = make_report(engine, engine.plan, config=QUICK)
    assert {row["engine"] for row in report.layers} == {"linear", "engine"}
    places = [place for _, left, right in report.data["aligned"] for place in (*left, *right)]
    assert len(places) == len(report.layers)


def test_progress_is_told(engine: Engine):
    told: list[tuple[int, int | None]] = []
    make_report(engine, engine.plan, run=False, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2), (2, 2)]


def test_tables_and_candidates_of_a_report():
    report = made_up_report(10, 9, tensors=2)
    assert len(report.layers) == 19 and len(report.tensors) == 4
    shipped = report.candidates[0]
    assert (shipped["name"], shipped["median_ms"], shipped["speedup_ratio"]) == ("lib int8", 1.0, 2.0)
    assert report.candidates[2]["median_ms"] is None
    assert report.tensors[0]["hi"] == pytest.approx(2.52) and "bins" not in report.tensors[0]


def test_a_report_shows_itself(engine: Engine):
    report = make_report(engine, run=False)
    assert repr(report) == f"<Report of linear (fp32): {len(report.layers)} layers>"
    assert "it was not to be run" in text_of(report)
    html = report._repr_html_()
    assert html.startswith("<table><caption>report</caption>") and "linear" in html
    evil = made_up_report(3)._repr_html_()
    assert "<img" not in evil and "&lt;/script&gt;" in evil


def test_the_page_is_saved_whole_or_not_at_all(engine: Engine, tmp_path: Path):
    report = quantrt.make_report(engine, run=False)
    report.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == report.html()
    with pytest.raises(DeviceError):
        report.save(tmp_path / "missing" / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
