# SPDX-License-Identifier: Apache-2.0
"""Whole builds for a GPU, for which the CPU stands in: every region is computed by the reference."""

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import Event, build
from quantrt.config import (
    AssignConfig,
    BenchConfig,
    BuildConfig,
    CalibrationConfig,
    ConstraintConfig,
    DeviceConfig,
    QuantizeConfig,
)
from quantrt.constrain.output_types import OutputTypes
from quantrt.errors import DeviceError
from quantrt.model.binding import Binding
from quantrt.model.load import make_model
from quantrt.plan.program_json import program_from_model
from quantrt.quantize.fit.fit import OWN_SCALES
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.cuda import CUDA
from quantrt.report.inspect.engine import describe_engine, show_engine
from tests.gpu_stand_in import REFERENCE_ALONE, stand_in_for_gpu
from tests.nets import net, quantized, resnet, run_ort, samples, weights
from tests.programs import GPU

build_module = importlib.import_module("quantrt.build")

IMAGES = {"x": samples(8, 3, 16, 16)}
CONFIG = BuildConfig(
    assign=AssignConfig(mixed=False),
    precisions=frozenset({"fp32", "fp16", "int8"}),
    bench=BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3),
    calibration=CalibrationConfig(method="minmax"),
    device=DeviceConfig(device="cuda"),
    cuda=REFERENCE_ALONE,
)


@pytest.fixture
def cpu_for_gpu() -> Iterator[None]:
    with stand_in_for_gpu():
        yield


def stages(events: list[Event]) -> dict[str, Event]:
    """The last event of each stage."""
    return {event.stage: event for event in events}


def layers_of(data: Mapping) -> dict[str, Mapping]:
    return {row["op_type"]: row for row in data["layers"]}


def test_a_build_reports_its_kernels_its_gpu_and_its_memory(
    cpu_for_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    events: list[Event] = []
    model = resnet()
    path = tmp_path / "m.qrt"
    with build(model, config=CONFIG, calibration=IMAGES, on_event=events.append) as engine:
        engine.save(path)
        x = samples(3, 3, 16, 16, seed=9)
        (want,) = run_ort(model.graph, {"x": x})
        got = engine.run({"x": x})["y"]
        data = describe_engine(engine.plan, path)
    assert np.linalg.norm(got - want) <= 0.1 * np.linalg.norm(want)
    timed = stages(events)["timing kernels"]
    assert timed.done == timed.total > 0
    assert timed.unit == "workloads"
    assert data["device"]["gpu"] == [GPU]
    rows = data["report"]["candidates"]
    assert {row["name"] for row in rows} == {"cuda fp32", "cuda fp16", "cuda int8+fp16"}
    assert all(row["memory"]["weight_bytes"] > 0 for row in rows if row["status"] != "rejected")
    assert len(data["program"]["regions"]) > 3
    assert "torch" in layers_of(data)["Conv"]["reason"], "what computes the node's region"
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    show_engine(data, layers=True)
    assert GPU["name"] in capsys.readouterr().out


def test_bfloat16_takes_the_place_of_float16(cpu_for_gpu: None, tmp_path: Path):
    config = replace(CONFIG, precisions=frozenset({"bf16", "int8"}))
    model, path = resnet(), tmp_path / "m.qrt"
    x = samples(3, 3, 16, 16, seed=9)
    (want,) = run_ort(model.graph, {"x": x})
    with build(model, config=config, calibration=IMAGES) as engine:
        engine.save(path)
        rows = {row["name"]: row for row in engine.report["candidates"]}
        got = engine.run({"x": x})["y"]
    assert set(rows) == {"cuda fp32", "cuda bf16", "cuda int8+bf16"}
    assert "rejected" not in {row["status"] for row in rows.values()}
    assert np.linalg.norm(got - want) <= 0.1 * np.linalg.norm(want)


def test_a_build_for_a_gpu_that_is_not_there_fails_first(monkeypatch: pytest.MonkeyPatch):
    def refuse(library: str, **options: object) -> None:
        assert (library, options) == ("cuda", {"compiles": True})
        raise DeviceError("no GPU")

    monkeypatch.setattr(build_module, "check_library", refuse)
    job_module = importlib.import_module("quantrt.quantized_job")
    monkeypatch.setattr(job_module, "load_model", lambda path: pytest.fail("the model was read"))
    with pytest.raises(DeviceError, match="no GPU"):
        build("model.onnx", config=CONFIG, calibration=IMAGES)


def test_a_model_that_is_quantized_already_keeps_its_scales_and_needs_no_data(cpu_for_gpu: None):
    source = write(quantized(resnet(), CUDA, IMAGES))
    model = make_model(source)
    config = replace(CONFIG, precisions=frozenset({"fp32"}))
    with build(model, config=config, validation=IMAGES) as engine:
        (want,) = run_ort(source, IMAGES)
        got = engine.run(IMAGES)["y"]
        report = engine.report
    assert np.linalg.norm(got - want) <= 0.05 * np.linalg.norm(want)
    assert f"the model is quantized already: its ranges are {OWN_SCALES}" in report["notes"]
    assert report["calibration"] is None
    rows = {row["name"]: row for row in report["candidates"]}
    assert set(rows) == {"cuda fp32", "cuda fp16", "cuda int8+fp16"}
    assert "rejected" not in {row["status"] for row in rows.values()}
    assert rows["cuda int8+fp16"]["range_method"] == OWN_SCALES


def test_smoothed_activations_are_in_the_engine_and_in_its_record(cpu_for_gpu: None):
    """Sixteen channels, two of them a hundred times as large, that a product and a residual sum read."""
    large = np.where(np.isin(np.arange(16), (3, 11)), 100, 1).astype(np.float32)
    arrays = weights({"beta": (16,), "w": (16, 16)}) | {"gamma": large}
    arrays["w"] /= large[:, None]
    model = net(
        "net (float[N,4,16] x) => (float[N,4,16] y) "
        "{ n = LayerNormalization<axis=-1>(x, gamma, beta) m = MatMul(n, w) y = Add(m, n) }",
        arrays,
    )
    config = replace(CONFIG, quantize=QuantizeConfig(smoothing="multiplied"))
    x = {"x": samples(120, 4, 16)}
    with build(model, config=config, calibration=x) as engine:
        rows = {row["name"]: row for row in engine.report["candidates"]}
        (want,) = run_ort(model.graph, x)
        got = engine.run(x)["y"]
    assert rows["cuda int8+fp16"]["range_method"] == "minmax, smoothed by multiplications"
    assert rows["cuda int8+fp16"]["status"] != "rejected"
    assert np.linalg.norm(got - want) <= 0.02 * np.linalg.norm(want)


def test_layers_store_what_rules_say_and_the_program_is_held_against_them(cpu_for_gpu: None):
    rules = ConstraintConfig(layer_output_types=("Relu_1:fp32", "Relu_3:int8", "Conv_4:fp16"))
    with build(resnet(), config=replace(CONFIG, constraints=rules), calibration=IMAGES) as engine:
        program = program_from_model(engine.plan.model)
    kept = {"r0": Binding("float32"), "r1": Binding("int8", 0.1), "r2": Binding("float16")}
    assert list(OutputTypes(stored=kept).why_not_stored(program)) == []
    broken = {"r0": Binding("int8", 0.1), "r1": Binding("float32"), "r2": Binding("float32")}
    assert list(OutputTypes(stored=broken).why_not_stored(program)) == [
        "'r0' cannot be int8: the engine stores float32",
        "'r1' cannot be float32: the engine stores int8",
        "'r2' cannot be float32: the engine stores float16",
    ]
