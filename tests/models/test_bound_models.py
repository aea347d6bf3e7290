# SPDX-License-Identifier: Apache-2.0
"""Trained models with inputs and outputs of other types, built by both libraries of a CPU and for a GPU."""

from pathlib import Path

import numpy as np
import pytest

from quantrt.build import build
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import BenchConfig, BindingConfig, BuildConfig, DeviceConfig
from quantrt.model.load import load_model
from quantrt.quantize.targets.onnxruntime import ORT
from tests.nets import observe, run_ort

QUICK = BenchConfig(duration_s=0.02, max_duration_s=0.05, warmup_s=0.01, min_runs=3)


def images(shared_data, model, count: int) -> np.ndarray:
    """Pictures with values from 0 to 255, as float32."""
    data = open_dataset(shared_data("images/cifar10_validation.zip"), model.inputs, preprocess="scale=1")
    return np.concatenate([batch.inputs[model.inputs[0].name] for batch in data.batches(count, count)])


@pytest.mark.parametrize("library", ["onnxruntime", "openvino"])
def test_bytes_with_channels_innermost(library: str, shared_data, tmp_path: Path):
    model = load_model(shared_data("models/cifar10_resnet8.onnx"))
    x = images(shared_data, model, 16)
    config = BuildConfig(
        precisions=frozenset({"fp32", "int8"}),
        bench=QUICK,
        device=DeviceConfig(libraries=(library,)),
        bindings=BindingConfig(
            input_types=("input:uint8",), input_layouts=("nhwc",), output_types=("logits:fp16",)
        ),
    )
    (want,) = run_ort(model.graph, {"input": x})
    with build(model, config=config, calibration={"input": x}, validation={"input": x}) as engine:
        pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).astype(np.uint8)
        got = engine.run({"input": pixels})["logits"]
        rows = {row["name"]: row["status"] for row in engine.report["candidates"]}
    assert "rejected" not in rows.values()
    assert got.dtype == np.float16
    assert (got.argmax(1) == want.argmax(1)).mean() >= 15 / 16


def test_codes_on_the_scale_of_a_calibration_cache(shared_data, tmp_path: Path):
    model = load_model(shared_data("models/cifar10_resnet8.onnx"))
    x = images(shared_data, model, 16)
    (want,) = run_ort(model.graph, {"input": x})
    ranges = observe(model, (ORT,), {"input": x}).tensors
    scales = {name: max(-found.lo, found.hi) / 127 for name, found in ranges.items()}
    scales |= {"logits": float(np.abs(want).max() / 127)}
    lines = [f"{name}: {np.array(scale, '>f4').tobytes().hex()}" for name, scale in scales.items()]
    cache = tmp_path / "made.cache"
    cache.write_text("\n".join(["TRT-8601-EntropyCalibration2", *lines]) + "\n")
    config = BuildConfig(
        precisions=frozenset({"fp32", "int8"}),
        bench=QUICK,
        device=DeviceConfig(libraries=("onnxruntime",)),
        bindings=BindingConfig(input_types=("int8",), output_types=("int8",)),
    )
    with build(model, config=config, calibration_cache=cache) as engine:
        (given,), (result,) = engine.inputs, engine.outputs
        assert given.scale == float(np.float32(scales["input"]))
        assert result.scale == float(np.float32(scales["logits"]))
        codes = np.clip(np.rint(x / np.float32(given.scale)), -128, 127).astype(np.int8)
        got = engine.run({"input": codes})["logits"]
    assert got.dtype == np.int8
    assert (got.argmax(1) == want.argmax(1)).mean() >= 14 / 16
