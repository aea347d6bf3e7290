# SPDX-License-Identifier: Apache-2.0
"""Engines for GPUs that are not here: what is asked for, inside the budget, and marked as not timed."""

import json
from pathlib import Path

import numpy as np
import pytest

from quantrt.build import Event
from quantrt.config import Budget, BuildConfig, CudaConfig, DeviceConfig
from quantrt.cross_build import cross_build, planned_gpu
from quantrt.errors import UsageError
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.plan.plan import Plan
from quantrt.plan.program_json import program_from_model
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.cuda import CUDA
from tests.nets import net, quantized, samples

TEXT = "net (float[N,64] x) => (float[N,32] y) { h = MatMul(x, w) y = Relu(h) }"


def model() -> Model:
    return net(TEXT, {"w": samples(64, 32, seed=3) / 8})


def config(*precisions: str, drop: float = 0.05, **cuda: object) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", *precisions}),
        device=DeviceConfig(device="cuda"),
        cuda=CudaConfig(**({"targets": ("sm_90",), "builder_optimization_level": 0} | cuda)),
        budget=Budget(max_drop_ratio=drop),
    )


def cross(options: BuildConfig) -> Plan:
    return cross_build(model(), config=options, calibration={"x": samples(64, 64)})


def rows(plan: Plan) -> dict[str, tuple[str, str]]:
    """Status and reason of every candidate."""
    return {row["name"]: (row["status"], row["reason"]) for row in plan.report["candidates"]}


def test_int8_is_planned_checked_on_the_cpu_and_marked_as_untimed(tmp_path: Path):
    events: list[Event] = []
    options = config("int8", targets=("sm_90", "sm_86"))
    plan = cross_build(model(), config=options, calibration={"x": samples(64, 64)}, on_event=events.append)
    assert plan.precision == "int8"
    (note,) = [note for note in plan.report["notes"] if "not timed" in note]
    assert "chosen for H100 SXM (sm_90), which is not here, by region: 2 estimated" in note
    assert plan.report["verdict"]["checked_on"] == (
        "calibration samples, with the reference kernels on the CPU"
    )
    assert all(row["latency"] is None for row in plan.report["candidates"])
    shipped = next(row for row in plan.report["candidates"] if row["status"] == "shipped")
    assert 20 < shipped["accuracy"]["sqnr_db"] < 80
    assert plan.device["gpu"] is None
    assert plan.device["planned_for"]["name"] == "H100 SXM"
    save_plan(plan, tmp_path / "model.qrt")
    program = program_from_model(load_plan(tmp_path / "model.qrt").model)
    assert program.kernels
    assert all(set(kernel.cubins) == {86, 90} for kernel in program.kernels.values())
    assert "compiling" in {event.stage for event in events}
    json.dumps(plan.report, allow_nan=False)


def test_what_is_over_the_budget_is_not_shipped():
    plan = cross(config("int8", drop=3e-6))
    assert plan.precision == "fp16"
    found = rows(plan)
    assert found["cuda int8+fp16"][0] == "over budget"
    assert found["cuda fp16"] == ("shipped", "inside the budget; not timed")
    assert plan.report["verdict"]["reason"].startswith("cuda fp16 is shipped, untimed: cuda int8+fp16 is out")


def test_fp32_alone_is_shipped_as_it_is():
    plan = cross_build(model(), config=config())
    assert (plan.precision, rows(plan)["cuda fp32"][0]) == ("fp32", "shipped")
    assert plan.report["verdict"]["checked_on"] == "nothing: no data"


def test_a_profile_is_kept_and_tactics_are_chosen_at_its_best_shapes():
    plan = cross_build(model(), config=config(profiles=("x=1x64:24x64:32x64",)))
    notes = program_from_model(plan.model).notes
    assert notes["profiles"] == [{"x": [[1, 64], [24, 64], [32, 64]]}]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"targets": ("sm_86", "sm_90")}, "A10"),
        ({"gpu": "h200"}, "H200"),
        ({"targets": ("sm_80", "sm_89"), "gpu": "l40s"}, "L40S"),
    ],
)
def test_kernels_are_chosen_for_the_named_gpu_or_the_first_target(options, name):
    assert planned_gpu(CudaConfig(**options)).name == name


def test_which_gpu_has_to_be_said():
    with pytest.raises(UsageError, match="without knowing which"):
        planned_gpu(CudaConfig())
    with pytest.raises(UsageError, match="the GPU L4 is none of the targets"):
        planned_gpu(CudaConfig(targets=("sm_90",), gpu="l4"))
    with pytest.raises(UsageError, match="without calibration"):
        cross_build(model(), config=config("int8"))


def test_labels_are_judged_by_the_reference_program():
    x = samples(32, 64)
    labels = np.maximum(x @ (samples(64, 32, seed=3) / 8), 0).argmax(1)
    plan = cross_build(
        model(),
        config=config("int8", drop=1.0),
        calibration={"x": x},
        validation={"x": x, "labels": labels},
    )
    shipped = next(row for row in plan.report["candidates"] if row["status"] == "shipped")
    assert shipped["accuracy"]["metric"] == "top1"
    assert shipped["accuracy"]["float_score"] == 1.0


def test_a_model_that_is_quantized_already_keeps_its_scales_and_needs_no_data():
    source = model()
    explicit = make_model(write(quantized(source, CUDA, {"x": samples(64, 64)})))
    plan = cross_build(explicit, config=config(), validation={"x": samples(16, 64, seed=5)})
    assert plan.precision == "int8"
    assert rows(plan).keys() == {"cuda fp32", "cuda fp16", "cuda int8+fp16"}
    assert any("quantized already" in note for note in plan.report["notes"])
