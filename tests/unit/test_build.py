# SPDX-License-Identifier: Apache-2.0
"""Whole builds of small models. Which engine is faster here is chance, so tests that need one say which."""

import importlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

import quantrt
from quantrt.assign.accuracy import checked as checked_module
from quantrt.assign.accuracy.accuracy import measure_accuracy
from quantrt.assign.choose import Choice, Verdict
from quantrt.build import Event, build
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import (
    AssignConfig,
    BenchConfig,
    Budget,
    BuildConfig,
    CalibrationConfig,
    DeviceConfig,
    QuantizeConfig,
)
from quantrt.errors import AccuracyError, DataError, DeviceError, ModelError, UsageError
from quantrt.model.load import load_model, make_model
from quantrt.model.model import Model
from quantrt.quantize.fit.equalized import EQUALIZED
from quantrt.quantize.fit.fit import NOT_CORRECTED, TRIED
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.runtime.engine import Engine, load
from quantrt.runtime.onnxruntime.executor import OnnxRuntimeExecutor
from quantrt.runtime.openvino.executor import OpenVinoExecutor
from quantrt.tactics import candidates as candidates_module
from quantrt.tactics.timing import Latency
from tests.nets import net, observe, quantized, resnet, run_ort, samples, weights

BENCH = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)
IMAGES = {"x": samples(12, 3, 16, 16)}
LABELLED = IMAGES | {"labels": np.arange(12) % 5}

build_module = importlib.import_module("quantrt.build")


MINMAX = CalibrationConfig(method="minmax")
UNMIXED = AssignConfig(mixed=False, bf16_beside_int8=False)
"""Whether there is bf16 is the CPU's affair; tests/unit/test_build_bf16.py asks it."""


def config(**options) -> BuildConfig:
    """Short timing, the quickest range method, nothing mixed, no bf16, unless `options` say otherwise."""
    return replace(BuildConfig(bench=BENCH, calibration=MINMAX, assign=UNMIXED), **options)


def make(model: Model | None = None, *, options: BuildConfig | None = None, **arguments) -> Engine:
    return build(model or resnet(), config=options or config(), **arguments)


@pytest.fixture
def prefer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """prefer("int8"): that precision wins whatever the clock says; accuracy is still measured."""

    def use(precision: str) -> None:
        def choose(latencies, is_float, check, max_drop_ratio, *, codes, coarse, why_wrong, floats) -> Choice:
            baseline = next(name for name, is_fp32 in is_float.items() if is_fp32)
            winner = next(name for name in latencies if precision in name)
            accuracy = None if winner == baseline else check(winner)
            verdicts = {name: Verdict("passed over", "for the test") for name in latencies}
            verdicts[winner] = Verdict("shipped", "for the test", None, accuracy)
            return Choice(winner, baseline, f"{winner} was asked for", verdicts)

        monkeypatch.setattr("quantrt.assign.choose_candidate.choose", choose)

    return use


def check_report(engine: Engine) -> Mapping:
    """The report, after checking that it is JSON without NaN and infinities and survives a round trip."""
    text = json.dumps(engine.report, allow_nan=False)
    assert json.loads(text) == engine.report
    return engine.report


def names(engine: Engine, status: str) -> set[str]:
    return {row["name"] for row in engine.report["candidates"] if row["status"] == status}


def test_a_float_build_needs_nothing_but_a_model():
    with make() as engine:
        assert engine.precision == "fp32" and engine.plan.is_calibrated
        np.testing.assert_allclose(engine.run(IMAGES)["y"], run_ort(resnet().graph, IMAGES)[0], atol=1e-4)
        report = check_report(engine)
    assert report["calibration"] is None
    assert report["verdict"]["reason"] == "fp32 was the only precision to choose from"
    assert "there are no data: timed on random values, x 1x3x16x16" in report["notes"]


def test_a_metric_is_a_function_and_its_name_is_what_the_report_keeps(prefer: Callable[[str], None]):
    prefer("int8")
    seen = []

    def hits(outputs, labels):
        seen.append((outputs["y"].shape, labels["labels"].shape))
        return (outputs["y"].argmax(axis=1) == labels["labels"]).mean()

    device = DeviceConfig(libraries=("onnxruntime",))
    options = config(budget=Budget(metric=hits, max_drop_ratio=1.0), device=device)
    with make(options=options, precisions="int8", calibration=IMAGES, validation=LABELLED) as engine:
        report = check_report(engine)
    name = f"{__name__}:test_a_metric_is_a_function_and_its_name_is_what_the_report_keeps.<locals>.hits"
    assert report["config"]["budget"] == {"metric": name, "max_drop_ratio": 1.0}
    assert {row["accuracy"]["metric"] for row in report["candidates"] if row["accuracy"]} == {name}
    assert seen[0] == ((8, 5), (8,)) and set(seen[1:]) == {((12, 5), (12,))}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_metric_that_fails_does_so_before_anything_is_calibrated(precision: str):
    events = []
    options = config(budget=Budget(metric=lambda outputs, labels: outputs["boxes"].mean()))
    with pytest.raises(UsageError, match="<lambda>' failed") as caught:
        make(
            options=options,
            precisions=precision,
            calibration=IMAGES,
            validation=LABELLED,
            on_event=lambda event: events.append(event.stage),
        )
    assert "outputs 'y' float32 [12, 5] and labels 'labels' int64 [12]" in str(caught.value.expected)
    assert set(events) == {"trying the metric"}


def test_a_build_without_data_says_what_it_was_timed_at():
    with make(options=config(bench=replace(BENCH, batch=3))) as engine:
        assert "there are no data: timed on random values, x 3x3x16x16" in engine.report["notes"]


@pytest.mark.parametrize("wrong_at", [None, 2, 3])
def test_an_engine_that_is_wrong_at_another_batch_is_not_shipped(
    monkeypatch: pytest.MonkeyPatch, wrong_at: int | None
):
    class Wrong(OnnxRuntimeExecutor):
        def run(self, inputs):
            found = super().run(inputs)
            return {name: array * (len(array) != wrong_at) for name, array in found.items()}

    def open_wrong(model, options, *, output_names):
        return Wrong(model, options, output_names=output_names)

    def timed(candidates, *unused, **options) -> Mapping[str, Latency]:
        return {name: Latency((2.0 if "fp32" in name else 1.0,) * 30) for name in candidates}

    monkeypatch.setattr("quantrt.checks.open_executor", open_wrong)
    monkeypatch.setattr(build_module, "time_candidates", timed)
    options = config(device=DeviceConfig(libraries=("onnxruntime",)), budget=Budget(max_drop_ratio=0.5))
    with make(options=options, precisions="int8", calibration=IMAGES) as engine:
        assert engine.precision == ("int8" if wrong_at is None else "fp32")
        reason = engine.report["verdict"]["reason"]
    if wrong_at is not None:
        text = f"int8 is wrong (its outputs are wrong at batch {wrong_at}: 0.0 dB beside the float model"
        assert text in reason


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_an_int8_build_ships_an_engine_that_is_close_to_float(prefer, library: str):
    prefer("int8")
    options = config(device=DeviceConfig(libraries=(library,)), calibration=CalibrationConfig())
    with make(options=options, precisions="int8", calibration=IMAGES, validation=LABELLED) as engine:
        assert engine.precision == "int8" and engine.plan.is_calibrated
        assert engine.plan.model.library == library
        got = engine.run(IMAGES)["y"]
        report = check_report(engine)
    wanted = run_ort(resnet().graph, IMAGES)[0]
    assert np.linalg.norm(got - wanted) / np.linalg.norm(wanted) < 0.1
    shipped = next(row for row in report["candidates"] if row["status"] == "shipped")
    assert shipped["accuracy"]["metric"] == "top1" and shipped["accuracy"]["samples"] == 12
    tried = {method.removesuffix(EQUALIZED) for method in shipped["output_noise_ratios"]}
    assert tried == {*TRIED, shipped["range_method"].removesuffix(NOT_CORRECTED) + NOT_CORRECTED}
    assert report["verdict"]["checked_on"] == "validation data"
    assert report["calibration"]["samples"] == 12 and not report["calibration"]["is_random"]


def test_the_guard_decides_by_the_clock_and_says_why():
    with make(precisions=["int8"], calibration=IMAGES) as engine:
        report = check_report(engine)
    shipped = report["verdict"]["shipped"]
    assert shipped in engine.report["verdict"]["reason"]
    assert engine.precision in shipped
    timed = [row for row in report["candidates"] if row["latency"] is not None]
    assert {row["name"] for row in timed} >= {shipped, report["verdict"]["baseline"]}
    # All from the same rounds, of runs as many as suit each.
    (rounds,) = {row["against_float"]["rounds"] for row in timed if row["against_float"] is not None}
    assert rounds >= 8 and all(row["latency"]["runs"] % rounds == 0 for row in timed)


def test_every_node_has_a_row_with_its_precision_and_reason(prefer):
    for precision in ("int8", "fp32"):
        prefer(precision)
        with make(precisions={"int8"}, calibration=IMAGES) as engine:
            layers = engine.plan.layers
        assert [layer.name for layer in layers] == [node.name for node in resnet().graph.graph]
        assert all(layer.reason and layer.sources for layer in layers)
        assert {layer.precision for layer in layers} <= {precision, "fp32"}
        assert precision in {layer.precision for layer in layers}


def test_an_engine_survives_saving(prefer, tmp_path):
    prefer("int8")
    with make(precisions="int8", calibration=IMAGES) as engine:
        engine.save(tmp_path / "engine.qrt")
        wanted = engine.run(IMAGES)["y"]
    with load(tmp_path / "engine.qrt") as again:
        np.testing.assert_array_equal(again.run(IMAGES)["y"], wanted)
        assert again.report == engine.report


@pytest.mark.parametrize("precisions", ["int8", ["int8"], {"int8", "fp32"}, ("fp32", "int8")])
def test_precisions_as_strings(precisions):
    with make(precisions=precisions, calibration=IMAGES) as engine:
        assert engine.report["config"]["precisions"] == ["fp32", "int8"]


def test_an_unknown_precision_names_the_nearest():
    with pytest.raises(UsageError, match="'int88'"):
        make(precisions="int88", calibration=IMAGES)


def test_int8_without_calibration_is_an_error_that_says_what_to_give():
    with pytest.raises(UsageError, match="without calibration") as caught:
        make(precisions="int8")
    assert "calib_random=True" in str(caught.value)


def test_random_calibration_brands_an_int8_engine_and_no_float_one(prefer):
    options = config(calibration=replace(MINMAX, calib_random=True))
    for precision, is_calibrated in (("int8", False), ("fp32", True)):
        prefer(precision)
        with make(options=options, precisions="int8") as engine:
            assert engine.plan.is_calibrated == is_calibrated
            report = check_report(engine)
        assert report["calibration"]["is_random"]
        assert report["verdict"]["checked_on"] == "nothing: no data"


def test_random_calibration_with_validation_data_is_checked(prefer):
    prefer("int8")
    options = config(calibration=replace(MINMAX, calib_random=True, max_samples=4))
    with make(options=options, precisions="int8", validation=LABELLED) as engine:
        assert engine.report["verdict"]["checked_on"] == "validation data"
        assert engine.report["calibration"]["samples"] == 4


def test_ranges_of_an_earlier_calibration_do_without_data(prefer):
    prefer("int8")
    model = resnet()
    stats = observe(model, TARGETS, IMAGES)
    with make(model, precisions="int8", stats=stats) as engine:
        report = check_report(engine)
    assert engine.precision == "int8"
    assert report["verdict"]["checked_on"] == "nothing: no data"
    shipped = next(row for row in report["candidates"] if row["status"] == "shipped")
    assert shipped["accuracy"] is None and shipped["output_noise_ratios"] == {}
    assert any("biases are not corrected" in note for note in report["notes"])


def test_ranges_of_another_checkpoint_are_refused():
    stats = observe(resnet(seed=1), TARGETS, IMAGES)
    with pytest.raises(DataError, match="another model or checkpoint"):
        make(resnet(seed=2), precisions="int8", stats=stats)


def test_validation_without_labels_is_compared_by_cosine(prefer):
    prefer("int8")
    with make(precisions="int8", calibration=IMAGES, validation=IMAGES) as engine:
        shipped = next(row for row in engine.report["candidates"] if row["status"] == "shipped")
    assert shipped["accuracy"]["metric"] == "cosine" and shipped["accuracy"]["float_score"] == 1.0


def test_top1_without_labels_is_refused_before_any_work():
    events: list[Event] = []
    with pytest.raises(UsageError, match="without labels"):
        make(
            precisions="int8",
            calibration=IMAGES,
            validation=IMAGES,
            budget=Budget(metric="top1"),
            on_event=events.append,
        )
    assert not events


def test_without_validation_the_accuracy_is_checked_on_calibration_samples(prefer):
    prefer("int8")
    options = config(calibration=replace(MINMAX, max_samples=5))
    with make(options=options, precisions="int8", calibration=IMAGES) as engine:
        shipped = next(row for row in engine.report["candidates"] if row["status"] == "shipped")
    assert shipped["accuracy"]["samples"] == 5
    assert engine.report["verdict"]["checked_on"] == "calibration samples"


def test_a_budget_that_cannot_be_met_ships_float(monkeypatch: pytest.MonkeyPatch):
    def spoilt(*arguments, **options):
        return replace(measure_accuracy(*arguments, **options), drop_ratio=math.nan)

    monkeypatch.setattr(checked_module, "measure_accuracy", spoilt)
    with make(precisions="int8", calibration=IMAGES) as engine:
        assert engine.precision == "fp32"


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_one_library_alone(library: str):
    options = config(device=DeviceConfig(libraries=(library,)))
    with make(options=options, precisions="int8", calibration=IMAGES) as engine:
        assert {row["library"] for row in engine.report["candidates"]} == {library}


def test_excluded_layers_stay_float(prefer):
    prefer("int8")
    options = config(quantize=QuantizeConfig(exclude=("Conv_0",), exclude_types=("Gemm",)))
    with make(options=options, precisions="int8", calibration=IMAGES) as engine:
        rows = {layer.name: layer for layer in engine.plan.layers}
    assert rows["Conv_0"].precision == rows["Gemm_12"].precision == "fp32"
    assert rows["Conv_0"].reason == "excluded by 'Conv_0'" and rows["Conv_2"].precision == "int8"


def test_layers_say_which_level_left_them_in_float(prefer):
    prefer("int8")
    options = config(quantize=QuantizeConfig(quantization_level="1"))
    with make(options=options, precisions="int8", calibration=IMAGES) as engine:
        rows = {layer.name: layer for layer in engine.plan.layers}
    reason = "left in float by quantization level 1"
    assert rows["Conv_0"].reason == f"{reason}: it reads an input of the model"
    assert rows["Gemm_12"].reason == f"{reason}: linear layer"
    assert rows["Conv_0"].precision == rows["Gemm_12"].precision == "fp32"
    assert rows["Conv_2"].precision == "int8"


def test_an_exclusion_that_matches_nothing_is_an_error():
    options = config(quantize=QuantizeConfig(exclude=("Cnov_0",)))
    with pytest.raises(UsageError, match="Cnov_0"):
        make(options=options, precisions="int8", calibration=IMAGES)


def test_samples_as_a_list_of_dicts_and_as_a_dataset():
    listed = [{"x": row} for row in IMAGES["x"]]
    model = resnet()
    for data in (listed, open_dataset(IMAGES, model.inputs)):
        with make(model, precisions="int8", calibration=data, validation=listed) as engine:
            assert engine.report["calibration"]["samples"] == 12


@pytest.mark.parametrize("which", ["calibration", "validation"])
def test_a_generator_is_refused_before_any_work(which: str):
    events: list[Event] = []
    data = {"calibration": IMAGES, which: ({"x": row} for row in IMAGES["x"])}
    with pytest.raises(UsageError, match=f"generator as {which} data") as caught:
        make(precisions="int8", on_event=events.append, **data)
    assert f"`{which}=READER`, the function" in str(caught.value) and not events


def test_events_come_in_the_order_of_the_stages(prefer):
    prefer("int8")
    events: list[Event] = []
    make(precisions="int8", calibration=IMAGES, on_event=events.append).close()
    stages = list(dict.fromkeys(event.stage for event in events))
    assert stages == ["calibrating", "quantizing", "opening", "timing", "checking", "timing layers"]
    for stage in stages:
        done = [event.done for event in events if event.stage == stage]
        assert done == sorted(done)
        last = [event for event in events if event.stage == stage][-1]
        assert last.total is None or last.done == last.total or stage == "timing"
        assert done[0] == 0 or stage == "calibrating"  # what it takes is its own from the start


def test_events_name_the_candidate_that_is_opened_or_checked(prefer):
    prefer("int8")
    events: list[Event] = []
    with make(precisions="int8", calibration=IMAGES, on_event=events.append) as engine:
        rows = [row["name"] for row in engine.report["candidates"]]
        shipped = engine.report["verdict"]["shipped"]
    opened = [event.candidate for event in events if event.stage == "opening"]
    assert sorted(opened[:-1]) == sorted(rows) and opened[-1] == ""
    assert {event.candidate for event in events if event.stage == "checking"} == {shipped}
    assert {event.candidate for event in events if event.stage not in ("opening", "checking")} == {""}


def test_a_model_with_a_symbolic_batch_is_timed_at_the_batch_asked_for(monkeypatch: pytest.MonkeyPatch):
    seen = set()
    run = OnnxRuntimeExecutor.run
    monkeypatch.setattr(
        OnnxRuntimeExecutor, "run", lambda self, inputs: seen.add(len(inputs["x"])) or run(self, inputs)
    )
    options = config(bench=replace(BENCH, batch=20), device=DeviceConfig(libraries=("onnxruntime",)))
    with make(options=options, validation=IMAGES) as engine:
        assert engine.run({"x": samples(3, 3, 16, 16)})["y"].shape == (3, 5)
    assert seen == {20, 3}


def test_a_batch_that_a_fixed_model_cannot_have_is_an_error():
    model = net("net (float[2,4] x) => (float[2,4] y) { y = MatMul(x, w) }", weights({"w": (4, 4)}))
    with pytest.raises(UsageError, match="batch size"):
        make(model, options=config(bench=replace(BENCH, batch=8)))


def test_a_model_with_a_fixed_batch_and_an_odd_number_of_samples(prefer):
    prefer("int8")
    text = "net (float[4,8] x) => (float[4,3] y) { y = Gemm(x, w, b) }"
    model = net(text, weights({"w": (8, 3), "b": (3,)}))
    data = {"x": samples(6, 8), "labels": np.arange(6) % 3}
    with make(model, precisions="int8", calibration=data, validation=data) as engine:
        shipped = next(row for row in engine.report["candidates"] if row["status"] == "shipped")
    assert shipped["accuracy"]["samples"] == 6


def test_several_inputs_and_outputs_and_integer_inputs(prefer):
    prefer("int8")
    text = """net (int64[N,6] ids, float[N,8] z) => (float[N,8] y, int64[N,1] i) {
    e = Gather(table, ids) m = ReduceMean<axes=[1], keepdims=0>(e) h = MatMul(m, w) s = Add(h, z)
    y = Gemm(s, v, b) i = ArgMax<axis=1>(y) }"""
    model = net(text, weights({"table": (50, 8), "w": (8, 8), "v": (8, 8), "b": (8,)}))
    rng = np.random.default_rng(0)
    data = {"ids": rng.integers(0, 50, (10, 6)), "z": samples(10, 8)}
    with make(model, precisions="int8", calibration=data) as engine:
        outputs = engine.run(data)
        check_report(engine)
    assert outputs["y"].shape == (10, 8) and outputs["i"].dtype == np.int64
    wanted = run_ort(model.graph, data)[0]
    assert np.linalg.norm(outputs["y"] - wanted) / np.linalg.norm(wanted) < 0.1


def test_a_model_with_nothing_to_quantize_is_built_in_float_and_says_so():
    model = net("net (float[N,8] x) => (float[N,8] y) { h = Exp(x) y = Sqrt(h) }")
    with make(model, precisions="int8", calibration={"x": samples(4, 8)}) as engine:
        assert engine.precision == "fp32"
        report = check_report(engine)
    assert "nothing was quantized: no node of the model has an 8-bit form" in report["notes"]
    assert names(engine, "rejected") == {"onnxruntime int8", "openvino int8"}


def test_a_model_that_is_quantized_already_runs_as_it_is():
    source = write(quantized(resnet(), ORT, IMAGES))
    with build(make_model(source), config=config(), precisions="int8", calibration=IMAGES) as engine:
        report = check_report(engine)
        got = engine.run(IMAGES)["y"]
    wanted = run_ort(source, IMAGES)[0]
    assert np.linalg.norm(got - wanted) / np.linalg.norm(wanted) < 0.1
    assert any("quantized already" in note for note in report["notes"])
    assert {layer.op_type for layer in engine.plan.layers} >= {"QuantizeLinear", "DequantizeLinear"}


def refusing(library: str) -> dict:
    def refuse(graph):
        raise DeviceError(f"{library} cannot run this")

    return {**candidates_module.LOWERINGS, library: refuse}


def test_a_library_that_refuses_the_model_becomes_rejected_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(candidates_module, "LOWERINGS", refusing("openvino"))
    with make(precisions="int8", calibration=IMAGES) as engine:
        report = check_report(engine)
    assert engine.plan.model.library == "onnxruntime"
    rejected = [row for row in report["candidates"] if row["status"] == "rejected"]
    assert {row["name"] for row in rejected} == {"openvino fp32", "openvino int8"}
    assert {row["reason"] for row in rejected} == {"openvino cannot run this"}


def test_when_no_library_runs_the_float_model_the_build_fails_with_every_reason(
    monkeypatch: pytest.MonkeyPatch,
):
    refuse = refusing("openvino") | {"onnxruntime": refusing("onnxruntime")["onnxruntime"]}
    monkeypatch.setattr(candidates_module, "LOWERINGS", refuse)
    with pytest.raises(ModelError, match="no library can run this model in FP32") as caught:
        make()
    assert "onnxruntime cannot run this" in str(caught.value)
    assert "openvino cannot run this" in str(caught.value)


@pytest.fixture
def open_executors(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Executors that were opened and not closed."""
    alive: set[int] = set()
    for kind in (OnnxRuntimeExecutor, OpenVinoExecutor):
        first, last = kind.__init__, kind.close

        def opened(self, *arguments, _first=first, **options):
            _first(self, *arguments, **options)
            alive.add(id(self))

        def closed(self, _last=last):
            alive.discard(id(self))
            _last(self)

        monkeypatch.setattr(kind, "__init__", opened)
        monkeypatch.setattr(kind, "close", closed)
    return alive


@pytest.mark.parametrize("stage", ["opening", "timing", "checking"])
def test_every_executor_is_closed_when_something_fails_half_way(prefer, open_executors, stage: str):
    prefer("int8")
    was_open = []

    def fail(event: Event) -> None:
        if event.stage == stage and event.done > 0:
            was_open.append(len(open_executors))
            raise AccuracyError("stop here")

    with pytest.raises(AccuracyError, match="stop here"):
        make(precisions="int8", calibration=IMAGES, on_event=fail)
    assert was_open[0] > 0 and not open_executors


def test_after_a_build_only_the_engine_is_open(open_executors):
    engine = make(precisions="int8", calibration=IMAGES)
    assert len(open_executors) == 1
    engine.close()
    assert not open_executors


def test_throughput_builds_are_timed_at_full_load(prefer):
    prefer("int8")
    options = config(device=DeviceConfig(hint="throughput", threads=2))
    with make(options=options, precisions="int8", calibration=IMAGES) as engine:
        assert engine.plan.options.hint == "throughput"
        check_report(engine)


def test_a_path_names_the_engine(tmp_path, demo_dir):
    with build(demo_dir / "digits_resnet.onnx", config=config()) as engine:
        assert engine.name == "digits_resnet"
        assert engine.report["model"]["path"] == "digits_resnet.onnx"
        assert engine.report["model"]["file_bytes"] > 1_000_000
    assert engine.plan.fingerprint == load_model(demo_dir / "digits_resnet.onnx").fingerprint


def test_the_public_name_is_this_function():
    assert quantrt.build is build
