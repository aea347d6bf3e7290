# SPDX-License-Identifier: Apache-2.0
"""Builds with a mixed candidate. How fast a region is here is chance, so the profile is made up."""

import importlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import quantrt.mix.contest
from quantrt.assign.accuracy import checked as checked_module
from quantrt.assign.tables.cost_model import TimedEngine, TimedLayer
from quantrt.assign.tables.sensitivity import _Part
from quantrt.assign.tables.tables import read_tables
from quantrt.build import build
from quantrt.config import (
    AssignConfig,
    BenchConfig,
    Budget,
    BuildConfig,
    CalibrationConfig,
    ConstraintConfig,
    DeviceConfig,
    QuantizeConfig,
)
from quantrt.errors import DataError, UsageError
from quantrt.model.model import Model
from quantrt.prepare import Event
from quantrt.report.built.mixed import rounds_table
from quantrt.tactics.timing import Latency
from tests.made_up_times import made_up_times
from tests.nets import net, samples, weights
from tests.outlier_net import outlier_model

BENCH = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)
INPUTS = {"x": samples(24, 12)}


@pytest.fixture
def outliers() -> Model:
    return outlier_model()


@pytest.fixture(autouse=True)
def int8_is_faster() -> Iterator[None]:
    with made_up_times():
        yield


def config(**assign) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", "int8"}),
        bench=BENCH,
        calibration=CalibrationConfig(method="minmax"),
        device=DeviceConfig(libraries=("onnxruntime",)),
        budget=Budget(metric="sqnr", max_drop_ratio=2e-3),
        assign=AssignConfig(**assign),
    )


def make(model: Model, options: BuildConfig, **arguments):
    return build(model, config=options, calibration=INPUTS, validation=INPUTS, **arguments)


def test_the_culprit_stays_float_and_the_rest_is_8_bit(outliers):
    events: list[Event] = []
    with make(outliers, config(), on_event=events.append) as engine:
        report = engine.plan.report
        assert report["verdict"]["shipped"] == "onnxruntime int8 mixed"
        rows = {row["name"]: row for row in report["candidates"]}
        assert rows["onnxruntime int8"]["status"] == "over budget"
        assert rows["onnxruntime int8 mixed"]["accuracy"]["drop_ratio"] <= 2e-3
        layers = [layer for layer in engine.plan.layers if layer.op_type == "MatMul"]
        assert [layer.precision for layer in layers] == ["int8", "fp32", "int8", "int8"]
        assert layers[1].reason.startswith("kept float: damage")
    stages = list(dict.fromkeys(event.stage for event in events))
    assert [stage for stage in stages if stage in ("timing regions", "measuring damage", "mixing precisions")]
    mixed = report["mixed"]
    assert [row["is_best"] for row in mixed["rounds"]].count(True) == 1
    worst = max(mixed["tables"]["regions"], key=lambda row: row["damage"]["int8"])
    assert worst["name"] == layers[1].name


def test_tables_are_written_and_damages_in_them_are_not_measured_again(outliers, tmp_path: Path, monkeypatch):
    path = tmp_path / "t.json"
    make(outliers, config(tables=str(path))).close()
    written = read_tables(path)
    assert written.fingerprint == outliers.fingerprint
    assert len(written.damages) == len(written.regions) == 4
    assert len(written.engines) >= 3

    def no_more(part, switches) -> float:
        raise AssertionError("measured again")

    monkeypatch.setattr("quantrt.assign.tables.sensitivity._Part.noise_ratio", no_more)
    with pytest.raises(AssertionError, match="measured again"):  # only what regions do together is
        make(outliers, config(tables=str(path)))


def test_damages_of_other_ranges_are_measured_again(outliers, tmp_path: Path, caplog):
    path = tmp_path / "t.json"
    make(outliers, config(tables=str(path))).close()
    before = read_tables(path)
    other = replace(
        config(tables=str(path)), calibration=CalibrationConfig(method="percentile", percentile=90.0)
    )
    make(outliers, other).close()
    assert "other ranges" in caplog.text
    after = read_tables(path)
    assert after.codes != before.codes and after.regions == before.regions
    assert all(after.damages[region.name] != before.damages[region.name] for region in after.regions)


def test_without_mixing_the_float_engine_is_shipped(outliers):
    with make(outliers, config(mixed=False)) as engine:
        assert engine.plan.report["verdict"]["shipped"] == "onnxruntime fp32"
        assert engine.plan.report["mixed"] is None


def test_nothing_is_mixed_where_all_of_int8_is_inside_the_budget(outliers):
    options = replace(config(), budget=Budget(metric="cosine", max_drop_ratio=1.0))
    with make(outliers, options) as engine:
        assert engine.plan.report["verdict"]["shipped"] == "onnxruntime int8"
        assert engine.plan.report["mixed"]["rounds"] == []
        assert engine.plan.report["mixed"]["reason"].startswith("not tried")


@pytest.mark.parametrize("is_faster", [True, False])
def test_inside_the_budget_a_mix_is_checked_where_it_is_faster(outliers, monkeypatch, is_faster: bool):
    """One product is said to be slower in codes; the mix that leaves it float is faster, or is not."""
    checked: list[float] = []
    measure_accuracy = checked_module.measure_accuracy

    def counted(*arguments, **options):
        checked.append(1.0)
        return measure_accuracy(*arguments, **options)

    def timed_engine(candidate, model, inputs, *, latency_ms, sessions, watched):
        nodes = [node for node in model.graph.graph if node.op_type == "MatMul"]
        times = [0.25 if candidate.spec.has_codes else 0.5] * len(nodes)
        times[1] = 1.0 if candidate.spec.has_codes else 0.1
        return TimedEngine(
            [TimedLayer((node.name,), ms) for node, ms in zip(nodes, times, strict=True)], sum(times)
        )

    def time_candidates(candidates, *unused, **more):
        times = {
            "onnxruntime fp32": 3.0,
            "onnxruntime int8": 2.0,
            "onnxruntime int8 mixed": 1.0 if is_faster else 2.5,
        }
        return {name: Latency((times[name],) * 32) for name in candidates}

    monkeypatch.setattr(checked_module, "measure_accuracy", counted)
    monkeypatch.setattr(quantrt.mix.measure, "timed_engine", timed_engine)
    for module in (quantrt.mix.measure, importlib.import_module("quantrt.build")):
        monkeypatch.setattr(module, "time_candidates", time_candidates)
    options = replace(config(), budget=Budget(metric="cosine", max_drop_ratio=1.0))
    with make(outliers, options) as engine:
        shipped, (row, *_) = engine.plan.report["verdict"]["shipped"], engine.plan.report["mixed"]["rounds"]
        console = Console(width=300, file=io.StringIO())
        console.print(rounds_table(engine.plan.report["mixed"]))
    text = console.file.getvalue()
    assert shipped == ("onnxruntime int8 mixed" if is_faster else "onnxruntime int8")
    assert row["is_checked"] == is_faster == (len(checked) == 2)
    assert ("its drop was not measured" in text) != is_faster


def test_a_mix_in_which_nothing_came_to_be_in_codes_is_not_shipped(monkeypatch):
    """A pool alone is said to be faster in codes, and it can only be in codes beside others."""
    text = """pooled (float[N,3,8,8] x) => (float[N,4] y) {
      a = Conv(x, w0)
      p = GlobalAveragePool(a)
      f = Flatten(p)
      y = MatMul(f, w1) }"""
    times = {"Conv": (0.1, 2.0), "GlobalAveragePool": (5.0, 0.1), "MatMul": (0.1, 2.0)}

    def timed_engine(candidate, model, inputs, *, latency_ms, sessions, watched):
        rows = [(node.name, times[node.op_type]) for node in model.graph.graph if node.op_type in times]
        codes = candidate.spec.has_codes
        return TimedEngine([TimedLayer((name,), pair[codes]) for name, pair in rows], latency_ms)

    def time_candidates(candidates, *unused, **more):
        known = {"onnxruntime fp32": 5.2, "onnxruntime int8": 4.1, "onnxruntime int8 mixed": 1.0}
        return {name: Latency((known[name],) * 32) for name in candidates}

    monkeypatch.setattr(quantrt.mix.measure, "timed_engine", timed_engine)
    for module in (quantrt.mix.measure, importlib.import_module("quantrt.build")):
        monkeypatch.setattr(module, "time_candidates", time_candidates)
    options = replace(config(), budget=Budget(metric="cosine", max_drop_ratio=1.0))
    inputs = {"x": samples(24, 3, 8, 8)}
    model = net(text, weights({"w0": (8, 3, 3, 3), "w1": (8, 4)}))
    with build(model, config=options, calibration=inputs, validation=inputs) as engine:
        report = engine.plan.report
    assert report["verdict"]["shipped"] == "onnxruntime int8"
    (row,) = report["mixed"]["rounds"]
    assert (row["quantized"], row["is_inside"]) == (0, False)
    console = Console(width=300, file=io.StringIO())
    console.print(rounds_table(report["mixed"]))
    assert "nothing came to be in 8 bits" in console.file.getvalue()


@pytest.mark.parametrize(
    ("rules", "place", "reason"),
    [
        ({"quantize": QuantizeConfig(exclude=("MatMul_7",))}, 3, "excluded by 'MatMul_7'"),
        ({"quantize": QuantizeConfig(only=("MatMul_[035]",))}, 3, "none of those that may be 8-bit"),
        ({"constraints": ConstraintConfig(layer_precisions=("MatMul_7:fp32",))}, 3, "excluded by"),
        ({"constraints": ConstraintConfig(layer_output_types=("MatMul_5:fp32",))}, 2, "excluded by"),
    ],
    ids=["--exclude", "--only", "--layer-precisions", "--layer-output-types"],
)
def test_rules_of_the_user_hold_in_a_mixed_engine(
    outliers, rules: Mapping[str, Any], place: int, reason: str
):
    with make(outliers, replace(config(), **rules)) as engine:
        assert engine.plan.report["verdict"]["shipped"] == "onnxruntime int8 mixed"
        layers = [layer for layer in engine.plan.layers if layer.op_type == "MatMul"]
    assert [layer.name for layer in layers] == ["MatMul_0", "MatMul_3", "MatMul_5", "MatMul_7"]
    kept = {1, place}
    assert [layer.precision for layer in layers] == ["fp32" if at in kept else "int8" for at in range(4)]
    assert layers[place].reason.startswith(reason)


def test_codes_that_the_budget_does_not_allow_are_refused(outliers):
    rules = ConstraintConfig(layer_precisions=("MatMul_3:int8",))
    with pytest.raises(UsageError, match="'MatMul_3' is not int8 but fp32"):
        make(outliers, replace(config(), constraints=rules))


def test_rounds_are_bounded_and_a_budget_of_nothing_ships_float(outliers):
    options = replace(config(assign_rounds=1), budget=Budget(metric="sqnr", max_drop_ratio=0.0))
    with make(outliers, options) as engine:
        assert engine.plan.report["verdict"]["shipped"] == "onnxruntime fp32"
        assert len(engine.plan.report["mixed"]["rounds"]) <= 1


def test_another_engine_under_a_known_name_is_measured_anew():
    """One that was freed leaves its place in memory to the next."""
    measured: list[str] = []
    candidates: dict[str, Any] = {}
    check = quantrt.mix.contest.remembered(measured.append, candidates)
    for count in range(1, 21):
        candidates["mixed"] = SimpleNamespace(executor=object())
        check("mixed")
        check("mixed")
        assert len(measured) == count


KILLED = """
import os, signal, sys
import quantrt.assign.tables.sensitivity as sensitivity
sys.path.insert(0, sys.argv[2])
from tests.unit import test_mix
from quantrt.assign.tables.sensitivity import _Part
measure, calls = _Part.noise_ratio, []
def until_killed(part, switches):
    calls.append(switches)
    if len(calls) > 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return measure(part, switches)
_Part.noise_ratio = until_killed
with test_mix.made_up_times():
    test_mix.make(test_mix.long_chain(), test_mix.config(tables=sys.argv[1]))
"""


def long_chain() -> Model:
    """Ten products, the second of which breaks in 8 bits."""
    shapes = {"w0": (12, 40), **{f"w{number}": (40, 40) for number in range(1, 9)}, "w9": (40, 6)}
    arrays = weights(shapes)
    factors = np.ones(40, np.float32)
    factors[3] = 1000.0
    arrays["w1"][3] /= 1000.0
    lines = ["a0 = MatMul(x, w0)", "b0 = Relu(a0)", "c0 = Mul(b0, factors)"]
    for number in range(1, 9):
        lines += [f"a{number} = MatMul(c{number - 1}, w{number})", f"c{number} = Relu(a{number})"]
    text = "chain (float[N,12] x) => (float[N,6] y) {\n" + "\n".join(lines) + "\ny = MatMul(c8, w9) }"
    return net(text, arrays | {"factors": factors})


def test_damages_outlive_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "t.json"
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), root],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = read_tables(path)
    assert 4 <= len(before.damages) < len(before.regions) == 10
    measured: list[Any] = []
    original = _Part.noise_ratio

    def counted(part: _Part, switches: Any) -> float:
        measured.append(tuple(switches))
        return original(part, switches)

    monkeypatch.setattr(_Part, "noise_ratio", counted)
    make(long_chain(), config(tables=str(path))).close()
    after = read_tables(path)
    assert len(after.damages) == 10
    assert {name: after.damages[name] for name in before.damages} == dict(before.damages)
    alone = [switches for switches in measured if len(switches) == 1]
    assert len(set(alone)) <= 10 - len(before.damages)


@pytest.mark.parametrize("text", ['{"kind": "assign', "[]", '{"kind": "assignment tables", "version": 1}'])
def test_damaged_tables_are_refused_before_anything_is_measured(outliers, tmp_path: Path, text: str):
    path = tmp_path / "t.json"
    path.write_text(text)
    events: list[Event] = []
    with pytest.raises(DataError) as caught:
        make(outliers, config(tables=str(path)), on_event=events.append)
    assert "--tables" in str(caught.value.hint)
    assert not events
    assert path.read_text() == text
