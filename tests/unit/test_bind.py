# SPDX-License-Identifier: Apache-2.0
"""Engines whose inputs and outputs have the types and layouts that a caller wants."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quantrt.bind import bind_floats, lay_out, read_edges
from quantrt.build import build
from quantrt.config import BenchConfig, BindingConfig, BuildConfig, CalibrationConfig, DeviceConfig
from quantrt.errors import DataError, UsageError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.load import make_model
from quantrt.prepare import Job, Quantized
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.cuda import CUDA
from quantrt.runtime.engine import load
from tests.nets import net, quantized, resnet, run_ort, samples

X = samples(8, 3, 16, 16)
BENCH = BenchConfig(duration_s=0.02, max_duration_s=0.05, warmup_s=0.01, min_runs=3)
CALIBRATION = CalibrationConfig(method="minmax")


def config(
    library: str = "onnxruntime", *, precisions: tuple[str, ...] = ("fp32",), **edges: str
) -> BuildConfig:
    bindings = BindingConfig(**{name: tuple(text.split(",")) for name, text in edges.items()})
    return BuildConfig(
        precisions=frozenset({"fp32", *precisions}),
        bench=BENCH,
        calibration=CALIBRATION,
        device=DeviceConfig(libraries=(library,)),
        bindings=bindings,
    )


def distance(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float32) - want) / np.linalg.norm(want))


def codes(x: np.ndarray, spec: TensorSpec) -> np.ndarray:
    return np.clip(np.rint(x / np.float32(spec.scale)), -128, 127).astype(np.int8)


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_halves_in_and_out(library: str, tmp_path: Path):
    model = resnet()
    (want,) = run_ort(model.graph, {"x": X})
    with build(model, config=config(library, input_types="x:fp16", output_types="fp16")) as engine:
        assert [spec.dtype for spec in (*engine.inputs, *engine.outputs)] == ["float16", "float16"]
        got = engine.run({"x": X.astype(np.float16)})["y"]
        engine.save(tmp_path / "m.qrt")
        with pytest.raises(DataError, match="wrong element type") as caught:
            engine.run({"x": X})
    assert (caught.value.got, caught.value.expected) == ("float32", "float16")
    assert got.dtype == np.float16
    assert distance(got, want) < 2e-3
    with load(tmp_path / "m.qrt") as again:
        assert again.inputs == engine.inputs
        np.testing.assert_array_equal(again.run({"x": X.astype(np.float16)})["y"], got)


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_codes_in_and_out_on_the_scales_of_calibration(library: str, tmp_path: Path):
    model = resnet()
    (want,) = run_ort(model.graph, {"x": X})
    options = config(library, precisions=("int8",), input_types="x:int8", output_types="y:int8")
    with build(model, config=options, calibration={"x": X}, validation={"x": X}) as engine:
        (given,), (result,) = engine.inputs, engine.outputs
        assert given.scale == pytest.approx(np.abs(X).max() / 127, rel=1e-6)
        assert result.scale == pytest.approx(np.abs(want).max() / 127, rel=1e-5)
        got = engine.run({"x": codes(X, given)})["y"]
        engine.save(tmp_path / "m.qrt")
        rows = {row["name"]: row for row in engine.report["candidates"]}
    assert got.dtype == np.int8
    assert distance(got * np.float32(result.scale), want) < 0.03
    assert all(row["accuracy"]["cosine"] > 0.99 for row in rows.values() if row.get("accuracy"))
    with load(tmp_path / "m.qrt") as again:
        assert (again.inputs, again.outputs) == (engine.inputs, engine.outputs)


def test_codes_on_a_scale_that_is_given_need_no_calibration():
    model = resnet()
    (want,) = run_ort(model.graph, {"x": X})
    with build(model, config=config(input_types="x:int8@0.05")) as engine:
        (spec,) = engine.inputs
        assert (spec.dtype, spec.scale) == ("int8", 0.05)
        assert distance(engine.run({"x": codes(X, spec)})["y"], want) < 0.03


def test_codes_of_a_model_with_scales_of_its_own_are_on_those():
    eight = quantized(resnet(), CUDA, {"x": X})
    source = write(eight)
    model = make_model(source)
    (want,) = run_ort(source, {"x": X})
    with build(model, config=config(input_types="x:int8")) as engine:
        (spec,) = engine.inputs
        got = engine.run({"x": codes(X, spec)})["y"]
    assert spec.scale == float(eight.activations["x"].scale)
    assert distance(got, want) < 1e-5, "the codes that the model itself makes"


def test_codes_without_a_range_are_an_error():
    with pytest.raises(UsageError, match="'x' cannot be int8: there is no range") as caught:
        build(resnet(), config=config(input_types="x:int8"))
    assert "--int8" in str(caught.value.expected)
    model = resnet()
    options = config(precisions=("int8",), input_types="x:int8")
    edges, job = read_edges(model, options), Job(model, options, {}, lambda event: None)
    with pytest.raises(UsageError, match="calibration has none"):
        bind_floats(job, Quantized(None, None), None, edges)


def test_bfloat16_of_a_file_stays_on_a_gpu_alone():
    """Unless something else is asked for; a CPU's libraries take none from numpy."""
    model = net("net (bfloat16[N,4] x) => (bfloat16[N,4] y) { y = Relu(x) }")
    gpu = DeviceConfig(device="cuda")
    edges = read_edges(model, BuildConfig(device=gpu))
    assert {name: binding.dtype for name, binding in edges.floats.items()} == dict.fromkeys("xy", "bfloat16")
    wanted = BindingConfig(input_types=("x:fp32",), output_types=("y:fp16",))
    asked = read_edges(model, BuildConfig(device=gpu, bindings=wanted))
    assert {name: binding.dtype for name, binding in asked.floats.items()} == {"y": "float16"}
    assert not read_edges(model, BuildConfig()).floats


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_channels_innermost(library: str):
    model = net("net (float[N,3,16,16] x) => (float[N,3,16,16] y) { h = Relu(x) y = Neg(h) }")
    (want,) = run_ort(model.graph, {"x": X})
    options = config(library, input_layouts="x:nhwc", output_layouts="y:nhwc")
    with build(model, config=options, validation={"x": X}) as engine:
        assert [str(spec) for spec in engine.inputs] == ["x float32 [N,16,16,3] nhwc"]
        got = engine.run({"x": np.ascontiguousarray(X.transpose(0, 2, 3, 1))})["y"]
    np.testing.assert_array_equal(got.transpose(0, 3, 1, 2), want)


def test_channels_innermost_of_a_quantized_engine_on_ranges_of_before():
    from quantrt.calibrate.collect import collect
    from quantrt.config import QuantizeConfig
    from quantrt.quantize.quantize import observed_values
    from quantrt.quantize.targets.onnxruntime import ORT
    from tests.nets import dataset

    model = resnet()
    stats = collect(
        model, observed_values(model, (ORT,), QuantizeConfig()), dataset(model, {"x": X}), CALIBRATION
    )
    options = config(precisions=("int8",), input_layouts="x:nhwc")
    with build(model, config=options, stats=stats, validation={"x": X}) as engine:
        rows = {row["name"]: row for row in engine.report["candidates"]}
    assert rows["onnxruntime int8"]["status"] != "rejected"


def test_whole_numbers_of_another_width():
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    model = net(
        "net (int64[N,2] ids) => (float[N,2,3] rows, int64[N] best) {"
        " rows = Gather(t, ids) m = ReduceMax<keepdims=0>(ids, a) best = Identity(m) }",
        {"t": table, "a": np.array([1])},
        opset=18,
    )
    ids = np.array([[0, 3], [2, 1]])
    options = config(input_types="ids:int32", output_types="best:int32")
    with build(model, config=options, validation={"ids": ids}) as engine:
        outputs = engine.run({"ids": ids.astype(np.int32)})
    np.testing.assert_array_equal(outputs["rows"], table[ids])
    assert outputs["best"].dtype == np.int32
    np.testing.assert_array_equal(outputs["best"], [3, 2])


def test_bytes_are_checked_against_the_samples():
    model, options = resnet(), config(input_types="x:uint8")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 16, 16)).astype(np.uint8)
    (want,) = run_ort(model.graph, {"x": pixels.astype(np.float32)})
    with build(model, config=options, validation={"x": pixels.astype(np.float32)}) as engine:
        np.testing.assert_allclose(engine.run({"x": pixels})["y"], want, rtol=1e-4, atol=1e-3)
    with pytest.raises(DataError, match="a sample of input 'x' cannot be given as uint8"):
        build(model, config=options, validation={"x": X})


def test_what_a_cpu_has_not():
    with pytest.raises(UsageError, match="cannot be bf16: the libraries of a CPU take none"):
        build(resnet(), config=config(input_types="x:bf16"))


def test_a_model_with_its_own_edges_is_left_as_it_is():
    model = resnet()
    edges = read_edges(model, config(input_types="x:fp32", input_layouts="x:nchw"))
    assert lay_out(model, edges) is model
    job, quantized_, truth = bind_floats(
        Job(model, replace(config()), {}, lambda event: None), Quantized(None, None), None, edges
    )
    assert job.model is model
    assert (quantized_.samples, truth) == (None, None)
