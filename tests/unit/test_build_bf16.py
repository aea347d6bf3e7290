# SPDX-License-Identifier: Apache-2.0
"""bf16 on a CPU: brought by int8 where there are instructions for it, and told where there are none."""

import importlib
import json

import numpy as np
import pytest

from quantrt.build import build
from quantrt.config import AssignConfig, BenchConfig, Budget, BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.device import describe_device, has_bf16
from quantrt.errors import DeviceError
from quantrt.plan.plan import ExecOptions
from quantrt.runtime.engine import Engine, load
from quantrt.runtime.executor import open_executor
from quantrt.runtime.openvino import executor as openvino_executor
from quantrt.tactics.timing import Latency
from tests.nets import resnet, samples

build_module = importlib.import_module("quantrt.build")

HERE = describe_device(with_gpu=False)
BENCH = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)
IMAGES = {"x": samples(12, 3, 16, 16)}

needs_bf16 = pytest.mark.skipif(not has_bf16(HERE["isa"]), reason="this CPU has no instructions for bf16")


def config(*precisions: str, **options) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", *precisions}),
        bench=BENCH,
        calibration=CalibrationConfig(method="minmax"),
        device=DeviceConfig(libraries=("openvino",)),
        **options,
    )


def rows(engine: Engine) -> dict[str, dict]:
    return {row["name"]: row for row in engine.report["candidates"]}


def timed_as_fastest(fastest: str):
    def timed(candidates, *unused, **options) -> dict[str, Latency]:
        return {name: Latency((1.0 if name == fastest else 2.0,) * 30) for name in candidates}

    return timed


@needs_bf16
def test_an_engine_beside_bf16_is_judged_by_the_budget_and_survives_saving(tmp_path, monkeypatch):
    monkeypatch.setattr(build_module, "time_candidates", timed_as_fastest("openvino int8+bf16"))
    with build(resnet(), config=config("int8"), calibration=IMAGES) as engine:
        assert (engine.precision, engine.plan.options.float_precision) == ("int8", "bf16")
        row = rows(engine)["openvino int8+bf16"]
        assert row["float_precision"] == "bf16" and 0.0 <= row["accuracy"]["drop_ratio"] < 0.01
        assert {"avx512_bf16", "amx_bf16", "neon_bf16", "sve_bf16"} & set(engine.plan.device["isa"])
        engine.save(tmp_path / "e.qrt")
        want = engine.run(IMAGES)
    with load(tmp_path / "e.qrt") as again:
        assert again.notes == ()
        np.testing.assert_array_equal(again.run(IMAGES)["y"], want["y"])


@needs_bf16
def test_floats_in_bf16_are_not_those_of_fp32_and_near_them():
    found = {}
    for floats in ("fp32", "bf16"):
        with build(resnet(), config=config(floats), calibration=IMAGES) as engine:
            plan = engine.plan
        options = ExecOptions(float_precision=floats)
        executor = open_executor(plan.model, options, output_names=["y"])
        found[floats] = executor.run(IMAGES)["y"]
        executor.close()
    error = np.abs(found["bf16"] - found["fp32"]).max() / np.abs(found["fp32"]).max()
    assert 1e-5 < error < 3e-2  # 8 bits of mantissa: 2^-9 at each of a few layers


@needs_bf16
def test_what_bf16_loses_counts_in_the_budget(monkeypatch):
    monkeypatch.setattr(build_module, "time_candidates", timed_as_fastest("openvino bf16"))
    budget = Budget(metric="sqnr", max_drop_ratio=1e-9)  # 90 dB, which 8 bits of mantissa do not have
    with build(resnet(), config=config("int8", budget=budget), calibration=IMAGES) as engine:
        assert engine.report["verdict"]["shipped"] == "openvino fp32"
        assert rows(engine)["openvino bf16"]["status"] == "over budget"


def test_without_the_instructions_int8_brings_nothing(monkeypatch):
    monkeypatch.setattr(build_module, "describe_device", lambda: HERE | {"isa": ["avx2"]})
    with build(resnet(), config=config("int8"), calibration=IMAGES) as engine:
        assert set(rows(engine)) <= {"openvino fp32", "openvino int8", "openvino int8 mixed"}


def test_without_the_instructions_bf16_that_is_asked_for_is_a_rejected_row(monkeypatch):
    monkeypatch.setattr(build_module, "describe_device", lambda: HERE | {"isa": ["avx2"]})
    with build(resnet(), config=config("bf16")) as engine:
        assert engine.precision == "fp32"
        row = json.loads(json.dumps(rows(engine)["openvino bf16"]))
    assert (row["status"], row["reason"]) == ("rejected", "this CPU has no instructions for bf16")


def test_int8_without_bf16_is_had_by_an_option():
    options = config("int8", assign=AssignConfig(bf16_beside_int8=False, mixed=False))
    with build(resnet(), config=options, calibration=IMAGES) as engine:
        assert set(rows(engine)) == {"openvino fp32", "openvino int8"}


def test_an_engine_of_bf16_is_refused_where_openvino_has_none(tmp_path, monkeypatch):
    with build(resnet(), config=config()) as engine:
        plan = engine.plan
    core = openvino_executor.openvino.Core

    class Older(core):
        def get_property(self, *names):
            return (
                ["FP32", "INT8"]
                if names == ("CPU", "OPTIMIZATION_CAPABILITIES")
                else super().get_property(*names)
            )

    monkeypatch.setattr(openvino_executor.openvino, "Core", Older)
    with pytest.raises(DeviceError, match="this CPU cannot compute in bf16") as caught:
        open_executor(plan.model, ExecOptions(float_precision="bf16"), output_names=["y"])
    assert "--no-bf16-beside-int8" in caught.value.hint and caught.value.got == "FP32, INT8"
