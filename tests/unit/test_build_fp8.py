# SPDX-License-Identifier: Apache-2.0
"""Whole builds in FP8: planned for GPUs that are not here, and on a CPU that stands in for one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs run in torch")

from quantrt.build import build
from quantrt.cli.main import main
from quantrt.config import BenchConfig, Budget, BuildConfig, CudaConfig, DeviceConfig
from quantrt.cross_build import cross_build
from quantrt.dtypes import FP8
from quantrt.errors import UsageError
from quantrt.gpu import gpu_named
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.plan.plan import Plan
from quantrt.plan.program import QUANTIZATION
from quantrt.plan.program_json import program_from_model
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.quantize.fit.fit import OWN_SCALES
from quantrt.quantize.qdq.write import write
from quantrt.quantize.record import from_record
from quantrt.quantize.targets.cuda_fp8 import CUDA_FP8
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.report.explain.peaks import gpu_peaks
from quantrt.report.explain.size import describe_size
from quantrt.report.inspect.engine import describe_engine, show_engine
from quantrt.report.layer_errors.graphs import CODE_TARGETS
from quantrt.runtime.cuda.executor import CudaExecutor, specs_of
from quantrt.tactics.cuda.lower import CudaLowering
from tests.nets import net, quantized, run_ort, samples
from tests.unit.test_build_cuda import CONFIG, cpu_for_gpu  # noqa: F401  # a fixture

BLOCK = """net (float[N,16,64] x) => (float[N,16,64] y) {
  h = MatMul(x, w)
  hb = Add(h, b)
  t = Erf(hb)
  z = MatMul(t, v)
  r = Add(z, x)
  m = Transpose<perm=[0,2,1]>(r)
  n = Transpose<perm=[0,2,1]>(m)
  y = MatMul(n, u)
}"""
ARRAYS = {
    "w": samples(64, 128, seed=3) / 8,
    "b": samples(128, seed=5),
    "v": samples(128, 64, seed=4) / 11,
    "u": samples(64, 64, seed=9) / 8,
}
X = {"x": samples(32, 16, 64)}


def block() -> Model:
    return net(BLOCK, ARRAYS)


def config(*precisions: str, **cuda: object) -> BuildConfig:
    return BuildConfig(
        precisions=frozenset({"fp32", *precisions}),
        device=DeviceConfig(device="cuda"),
        cuda=CudaConfig(**({"targets": ("sm_90",), "builder_optimization_level": 0} | cuda)),
        budget=Budget(max_drop_ratio=0.05),
    )


def statuses(plan: Plan) -> dict[str, str]:
    return {row["name"]: row["status"] for row in plan.report["candidates"]}


def test_an_engine_is_planned_saved_and_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = cross_build(block(), config=config("fp8", targets=("sm_90", "sm_89")), calibration=X)
    assert plan.precision == "fp8"
    assert statuses(plan)["cuda fp8+fp16"] == "shipped"
    path = tmp_path / "m.qrt"
    save_plan(plan, path)
    loaded = load_plan(path)
    program = program_from_model(loaded.model)
    stored = {key: array.dtype.name for key, array in program.weights.items() if array.ndim == 2}
    assert set(stored.values()) == {"float8_e4m3fn"}
    assert all(set(kernel.cubins) == {89, 90} for kernel in program.kernels.values())
    buffers = {name for step in program.steps for name in step.outputs}
    assert any(name.endswith("#fp8") for name in buffers)
    assert not any(name.endswith("#int8") for name in buffers)
    rows = {layer.name: layer.precision for layer in loaded.layers}
    assert [rows[name] for name in ("MatMul_0", "MatMul_3", "MatMul_7")] == ["fp8"] * 3
    data = describe_engine(loaded, path)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert "fp8" in {row["precision"] for row in data["program"]["regions"]}
    show_engine(data, layers=True)
    out = capsys.readouterr().out
    assert "fp8 engine on cuda" in out
    layers = engine_layers(loaded)
    assert {layer.computes_in for layer in layers if layer.name.startswith("MatMul")} == {"fp8"}
    assert any("fp8 codes" in layer.reason for layer in layers if layer.name.startswith("convert"))


def test_an_engine_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = cross_build(block(), config=config("fp8"), calibration=X)
    size = describe_size(plan, None, engine_layers(plan))
    assert {"fp8 weights"} <= {what for what, _ in size.parts}
    assert not size.float_layers
    peaks = gpu_peaks(plan.device)
    assert peaks is not None
    assert peaks.operations_per_us["fp8"] == peaks.operations_per_us["int8"]
    save_plan(plan, tmp_path / "m.qrt")
    assert main(["explain", str(tmp_path / "m.qrt"), "--what-if", "fp8"]) == 0
    out = capsys.readouterr().out
    assert "products in fp8" in out
    assert "it is in fp8 already" in out


def test_the_fake_quantized_model_comes_back_from_the_file(tmp_path: Path):
    plan = cross_build(block(), config=config("fp8"), calibration=X)
    save_plan(plan, tmp_path / "m.qrt")
    loaded = load_plan(tmp_path / "m.qrt")
    record = program_from_model(loaded.model).notes[QUANTIZATION]
    again = from_record(block(), record, CODE_TARGETS[loaded.precision])
    wanted = quantized(block(), CUDA_FP8, X)
    for use, tensor in again.weights.items():
        np.testing.assert_array_equal(tensor.codes.view("u1"), wanted.weights[use].codes.view("u1"))
    assert {name: grid.dtype for name, grid in again.activations.items()} == dict.fromkeys(
        again.activations, FP8
    )


def test_the_reference_program_is_the_fake_quantized_model():
    found = quantized(block(), CUDA_FP8, X)
    lowering = CudaLowering(block(), config().cuda, X, gpu=gpu_named("H200"), device=None)
    program = lowering.reference(found, "fp32")
    x = samples(3, 16, 64, seed=8)
    (want,) = run_ort(write(found), {"x": x})
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    got = executor.run({"x": x})["y"]
    executor.close()
    error = np.abs(got - want)
    # A sum that is rounded otherwise may round to the next code, 2**-4 away, in front of a product.
    assert np.median(error) <= 1e-5 * np.abs(want).max()
    assert np.linalg.norm(error) <= 5e-3 * np.linalg.norm(want)


CONVS = """net (float[N,8,8,8] x) => (float[N,64,16] y) {
  c = Conv<pads=[1,1,1,1]>(x, k)
  s = Sigmoid(c)
  g = Mul(c, s)
  d = Conv<pads=[1,1,1,1]>(g, l)
  r = Add(d, x)
  f = Reshape(r, shape)
  t = Transpose<perm=[0,2,1]>(f)
  y = MatMul(t, w)
}"""
CONV_ARRAYS = {
    "k": samples(8, 8, 3, 3, seed=3) / 8,
    "l": samples(8, 8, 3, 3, seed=4) / 8,
    "w": samples(8, 16, seed=5) / 3,
    "shape": np.asarray([0, 8, 64], np.int64),
}
IMAGES = {"x": samples(16, 8, 8, 8)}


def test_convolutions_are_int8_beside_products_in_fp8(tmp_path: Path):
    model = net(CONVS, CONV_ARRAYS)
    plan = cross_build(model, config=config("fp8"), calibration=IMAGES)
    save_plan(plan, tmp_path / "m.qrt")
    loaded = load_plan(tmp_path / "m.qrt")
    rows = {layer.name: layer.precision for layer in loaded.layers}
    assert [rows[name] for name in ("Conv_0", "Conv_3", "MatMul_7")] == ["int8", "int8", "fp8"]
    program = program_from_model(loaded.model)
    forms = {name.partition("#")[2] for step in program.steps for name in step.outputs}
    assert {"int8", "fp8"} <= forms
    computed = {layer.name: layer.computes_in for layer in engine_layers(loaded)}
    assert [computed[name] for name in ("Conv_0", "Conv_3", "MatMul_7")] == ["int8", "int8", "fp8"]
    record = program.notes[QUANTIZATION]
    again, wanted = from_record(model, record, CUDA_FP8), quantized(model, CUDA_FP8, IMAGES, method="minmax")
    for use, tensor in again.weights.items():
        np.testing.assert_array_equal(tensor.codes.view("u1"), wanted.weights[use].codes.view("u1"))
    types = {name: grid.dtype for name, grid in wanted.activations.items()}
    assert {name: grid.dtype for name, grid in again.activations.items()} == types


def test_codes_of_both_kinds_are_built(cpu_for_gpu: None):  # noqa: F811
    wanted = replace(CONFIG, precisions=frozenset({"fp32", "fp8"}))
    with build(net(CONVS, CONV_ARRAYS), config=wanted, calibration=IMAGES) as engine:
        assert "rejected" not in {row["status"] for row in engine.report["candidates"]}


def test_codes_of_both_kinds_are_what_they_say():
    model = net(CONVS, CONV_ARRAYS)
    found = quantized(model, CUDA_FP8, IMAGES)
    (want,) = run_ort(write(found), IMAGES)
    lowering = CudaLowering(model, config().cuda, IMAGES, gpu=gpu_named("H200"), device=None)
    program = lowering.reference(found, "fp32")
    executor = CudaExecutor(program, *specs_of(program), device="cpu")
    got = executor.run(IMAGES)["y"]
    executor.close()
    error = np.abs(got - want)
    assert np.median(error) <= 1e-5 * np.abs(want).max()
    assert np.linalg.norm(error) <= 5e-3 * np.linalg.norm(want)


def test_int8_and_fp8_are_candidates_side_by_side():
    plan = cross_build(block(), config=config("int8", "fp8"), calibration=X)
    assert set(statuses(plan)) == {"cuda fp32", "cuda fp16", "cuda int8+fp16", "cuda fp8+fp16"}
    assert "rejected" not in statuses(plan).values()


def test_before_ada_products_stay_float_and_say_why():
    plan = cross_build(block(), config=config("fp8", targets=("sm_80",)), calibration=X)
    program = program_from_model(plan.model)
    assert not any(array.dtype == "float8_e4m3fn" for array in program.weights.values())
    assert {layer.precision for layer in plan.layers} == {"fp16"}
    row = next(row for row in plan.report["candidates"] if row["name"] == "cuda fp8+fp16")
    assert row["status"] == "rejected"
    assert row["reason"] == "no fp8 products on compute capability 80: 89 is the least"


def test_a_model_with_float8_pairs_keeps_its_scales(cpu_for_gpu: None):  # noqa: F811
    source = write(quantized(block(), CUDA_FP8, X))
    model = make_model(source)
    wanted = replace(CONFIG, precisions=frozenset({"fp32"}))
    with build(model, config=wanted, validation=X) as engine:
        rows = {row["name"]: row for row in engine.report["candidates"]}
        (want,) = run_ort(source, X)
        got = engine.run(X)["y"]
    assert set(rows) == {"cuda fp32", "cuda fp16", "cuda fp8+fp16"}
    assert rows["cuda fp8+fp16"]["range_method"] == OWN_SCALES
    assert "rejected" not in {row["status"] for row in rows.values()}
    assert np.linalg.norm(got - want) <= 0.05 * np.linalg.norm(want)


def test_a_cpu_has_no_fp8():
    with pytest.raises(UsageError, match="no library here computes in fp8 on a CPU"):
        BuildConfig(precisions=frozenset({"fp8"}))


def test_a_cpu_runs_a_model_with_float8_pairs_as_it_is():
    source = write(quantized(block(), CUDA_FP8, X))
    bench = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)
    config = BuildConfig(device=DeviceConfig(libraries=("onnxruntime",)), bench=bench)
    with build(make_model(source), config=config, validation=X) as engine:
        (want,) = run_ort(source, X)
        np.testing.assert_array_equal(engine.run(X)["y"], want)
