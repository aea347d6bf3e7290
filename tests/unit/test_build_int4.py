# SPDX-License-Identifier: Apache-2.0
"""Builds with weights alone in 4 bits for a GPU, for which the CPU stands in."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build
from quantrt.config import Budget, BuildConfig, CudaConfig, DeviceConfig, QuantizeConfig
from quantrt.cross_build import cross_build
from quantrt.errors import UsageError
from quantrt.plan.grouped_weight import GroupedWeight
from quantrt.plan.plan import Plan
from quantrt.plan.program_json import program_from_model
from quantrt.plan.serialize import load_plan
from quantrt.runtime.engine import Engine
from tests.gpu_stand_in import BRIEF, REFERENCE_ALONE, stand_in_for_gpu
from tests.nets import net, run_ort, weights

VOCABULARY, WIDTH = 1024, 128
TEXT = """words (int64[N,S] ids) => (float[N,S,64] y) {
  e = Gather(table, ids)
  q = MatMul(e, wq)  k = MatMul(e, wk)
  qt = Transpose<perm=[0,2,1]>(q)  kt = Transpose<perm=[0,2,1]>(k)
  both = Mul(qt, kt)  b = Transpose<perm=[0,2,1]>(both)
  r = Relu(b)
  y = MatMul(r, wo)
}"""
SHAPES = {"table": (VOCABULARY, WIDTH), "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wo": (WIDTH, 64)}
IDS = {"ids": np.arange(8 * 16).reshape(8, 16) * 7 % VOCABULARY}
CONFIG = BuildConfig(
    quantize=QuantizeConfig(weights="int4", weight_rounding="nearest"),
    device=DeviceConfig(device="cuda"),
    cuda=REFERENCE_ALONE,
    bench=BRIEF,
    budget=Budget(max_drop_ratio=0.5),
)


def text_net():
    return net(TEXT, weights(SHAPES))


def held(plan: Plan) -> dict[str, GroupedWeight]:
    """Weights that the file holds in groups, by region."""
    program = program_from_model(plan.model)
    found = {key.split("/")[0]: weight for key, weight in program.coded.items()}
    assert all(isinstance(weight, GroupedWeight) for weight in found.values())
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("group_size", [32, 128])
def test_an_engine_holds_its_weights_in_4_bits(group_size: int, tmp_path: Path):
    """Merged projections and tables among them; it computes what ONNX Runtime does with the same codes."""
    model, path = text_net(), tmp_path / "m.qrt"
    quantize = replace(CONFIG.quantize, group_size=group_size)
    with stand_in_for_gpu(), build(model, config=replace(CONFIG, quantize=quantize), calibration=IDS) as made:
        made.save(path)
        plan, got, report = made.plan, made.run(IDS)["y"], made.report
    rows = {row["name"]: row["status"] for row in report["candidates"]}
    assert rows == {"cuda fp32": "baseline", "cuda fp16": "passed over", "cuda int4": "shipped"}
    program = program_from_model(plan.model)
    assert {program.held_type(key) for key in program.coded} == {"int4"}
    codes = held(plan)
    assert len(codes) == 3 and {weight.group_size for weight in codes.values()} == {group_size}
    floats = 4 * sum(np.prod(shape) for shape in SHAPES.values())
    assert path.stat().st_size < (0.16 if group_size == 128 else 0.18) * floats + 8000
    layers = Counter((row.op_type, row.precision) for row in plan.layers)
    assert layers["MatMul", "int4"] == 2 and layers["Gather", "int4"] == 1 and layers["Relu", "fp16"] == 1
    (want,) = run_ort(model.graph, IDS)
    assert 0.01 < np.linalg.norm(got - want) / np.linalg.norm(want) < 0.4
    with stand_in_for_gpu(), Engine(load_plan(path)) as loaded:
        assert np.array_equal(loaded.run(IDS)["y"], got)


def test_a_gpu_that_is_not_here(tmp_path: Path):
    cuda = CudaConfig(builder_optimization_level=0, targets=("sm_90",), exclude_tactic_sources=("cublaslt",))
    plan = cross_build(text_net(), config=replace(CONFIG, cuda=cuda), calibration=IDS)
    assert plan.precision == "int4"
    program = program_from_model(plan.model)
    runners = Counter(step.runner for step in program.steps)
    assert runners["gemm_w4a16"] == 2
    words = [key for key in program.weights if program.held_type(key) == "int4"]
    assert len(words) == 2 and len(program.coded) == 1, (
        "those of products as the kernel reads them, and the table"
    )


@pytest.mark.parametrize("precision", ["bf16", "int8", "fp8"])
def test_weights_in_4_bits_go_with_halves(precision: str):
    with pytest.raises(UsageError, match=precision):
        replace(CONFIG, precisions=frozenset({"fp32", precision}))


def test_samples_are_asked_for():
    config = replace(CONFIG, quantize=QuantizeConfig(weights="int4"))
    with stand_in_for_gpu(), pytest.raises(UsageError, match="without samples"):
        build(text_net(), config=config)
