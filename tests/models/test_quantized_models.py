# SPDX-License-Identifier: Apache-2.0
"""Trained models, quantized on real images, stay close to themselves in float, in the runtimes themselves.

Floors are some 3 dB under what was measured (onnxruntime 1.31, openvino 2026.4): they catch a rule or a grid
that went wrong, not a change in the last decibel.
"""

from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest

from quantrt.build import build
from quantrt.calibrate.collect import collect
from quantrt.calibrate.dataset import open_dataset
from quantrt.config import BenchConfig, BuildConfig, CalibrationConfig, QuantizeConfig
from quantrt.model.load import load_model
from quantrt.quantize.fit.fit import fit, observe_reference
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantize import observed_values
from quantrt.quantize.targets import TARGETS, target_named
from quantrt.reference.metrics import sqnr_db, top1
from tests.nets import nodes, ort_kernels, run_openvino, run_ort

CIFAR = "scale=1,mean=125.307;122.961;113.8575,std=62.985;62.0925;66.708"
RESNET_CIFAR = "scale=1,mean=123.675;116.28;103.53,std=58.395;57.12;57.375"
CALIBRATION_SAMPLES = 32
COMPARED_SAMPLES = 64


@dataclass(frozen=True)
class Case:
    """A model, how its images are prepared, and the least SQNR in dB of its outputs for each target."""

    model: str
    preprocess: str
    floors: dict[str, float]


CASES = (
    Case("cifar10_resnet20", RESNET_CIFAR, {"ort": 26, "openvino": 27, "tensorrt": 25}),
    Case("cifar10_resnet8", "scale=1", {"ort": 29, "openvino": 31, "tensorrt": 27}),
    Case("cifar10_vit_tiny_d9", CIFAR, {"ort": 26, "openvino": 23, "tensorrt": 22}),
    Case("cifar10_mobilenetv3_small", CIFAR, {"ort": 11, "openvino": 12, "tensorrt": 11}),
    Case("cifar10_efficientvit_b0", CIFAR, {"ort": 20, "openvino": 20, "tensorrt": 19}),
)


def stacked(dataset, count: int) -> np.ndarray:
    (name,) = next(iter(dataset.batches(1))).inputs
    return np.concatenate([batch.inputs[name] for batch in islice(dataset.batches(1), count)])


def fitted_graphs(model, inputs):
    """The Q/DQ graph for every target, from one calibration."""
    config, calibration = QuantizeConfig(), CalibrationConfig()
    names = observed_values(model, TARGETS, config)
    stats = collect(model, names, open_dataset(inputs, model.inputs), calibration)
    reference = observe_reference(model, [inputs], config)
    return {
        target.name: write(fit(model, stats, target, reference, config=config, calibration=calibration).model)
        for target in TARGETS
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
def test_a_trained_model_stays_close_to_itself(case: Case, shared_data):
    model = load_model(shared_data(f"models/{case.model}.onnx"))
    name = model.inputs[0].name
    images = {
        part: stacked(
            open_dataset(shared_data(f"images/cifar10_{part}.zip"), model.inputs, preprocess=case.preprocess),
            count,
        )
        for part, count in (("calibration", CALIBRATION_SAMPLES), ("validation", COMPARED_SAMPLES))
    }
    graphs = fitted_graphs(model, {name: images["calibration"]})
    inputs = {name: images["validation"]}
    (wanted,) = run_ort(model.graph, inputs)
    for target, floor_db in case.floors.items():
        run = run_openvino if target == "openvino" else run_ort
        (got,) = run(graphs[target], inputs)
        assert sqnr_db(wanted, got) > floor_db, target
        assert top1(got, wanted.argmax(axis=1)) > 0.85, target


@pytest.mark.slow
@pytest.mark.parametrize(("target", "run"), [("ort", run_ort), ("openvino", run_openvino)])
def test_a_transformer_with_scales_per_token_needs_no_data(target: str, run, shared_data):
    model = load_model(shared_data("models/cifar10_vit_tiny_d9.onnx"))
    data = open_dataset(shared_data("images/cifar10_validation.zip"), model.inputs, preprocess=CIFAR)
    inputs = {model.inputs[0].name: stacked(data, COMPARED_SAMPLES)}
    config, calibration = QuantizeConfig(activations="per-token"), CalibrationConfig()
    reference = observe_reference(model, (), config)
    fitted = fit(model, None, target_named(target), reference, config=config, calibration=calibration)
    (wanted,), (got,) = run_ort(model.graph, inputs), run(write(fitted.model), inputs)
    assert sqnr_db(wanted, got) > 32
    assert top1(got, wanted.argmax(axis=1)) > 0.95


@pytest.mark.slow
def test_the_demos_network_keeps_every_digit(demo_dir):
    model = load_model(demo_dir / "digits_resnet.onnx")
    with np.load(demo_dir / "calibration.npz") as file:
        calibration = {"image": file["image"][:CALIBRATION_SAMPLES]}
    with np.load(demo_dir / "validation.npz") as file:
        inputs, labels = {"image": file["image"][:200]}, file["labels"][:200]
    graphs = fitted_graphs(model, calibration)
    (wanted,) = run_ort(model.graph, inputs)
    float_hits = int((wanted.argmax(axis=1) == labels).sum())
    for target in TARGETS:
        run = run_openvino if target.name == "openvino" else run_ort
        (got,) = run(graphs[target.name], inputs)
        assert sqnr_db(wanted, got) > 34, target.name
        assert int((got.argmax(axis=1) == labels).sum()) >= float_hits - 1, target.name
    convolutions = len(nodes(model.graph, "Conv"))
    assert ort_kernels(graphs["ort"])["QLinearConv"] == convolutions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "floor_db"),
    [
        ("kws_dscnn", 33),
        ("ad_toycar_autoencoder", 39),
        ("ultraface_rfb320", 27),
        ("vww_mobilenet_v1_025_96", 23),
    ],
)
def test_models_without_images_of_their_own_run_quantized(name: str, floor_db: float, shared_data, rng):
    model = load_model(shared_data(f"models/{name}.onnx"))
    spec = model.inputs[0]
    shape = [8, *(dim if isinstance(dim, int) else 1 for dim in spec.shape[1:])]
    if isinstance(spec.shape[0], int):
        shape[0] = spec.shape[0]
    inputs = {spec.name: rng.standard_normal(shape).astype(np.float32)}
    graphs = fitted_graphs(model, inputs)
    assert ort_kernels(graphs["ort"])["Conv"] == 0  # each runs in 8 bits, whatever activation follows it
    for target in ("ort", "openvino"):
        run = run_openvino if target == "openvino" else run_ort
        wanted, got = run_ort(model.graph, inputs), run(graphs[target], inputs)
        for ref, out in zip(wanted, got, strict=True):
            assert sqnr_db(ref, out) > floor_db, target


def test_a_recurrent_model_with_control_flow_runs_quantized(shared_data, rng):
    model = load_model(shared_data("models/silero_vad_16k_op15.onnx"))
    values = {"int64": lambda shape: np.full(shape, 16000), "float32": None}
    inputs = {}
    for spec in model.inputs:
        shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape or ()]
        make = values[spec.dtype]
        inputs[spec.name] = make(shape) if make else (0.1 * rng.standard_normal(shape)).astype(np.float32)
        if spec.name == "input":
            inputs[spec.name] = (0.1 * rng.standard_normal((1, 576))).astype(np.float32)
    config = QuantizeConfig()
    target = target_named("ort")
    names = observed_values(model, (target,), config)
    stats = collect(model, names, open_dataset([inputs], model.inputs), CalibrationConfig())
    reference = observe_reference(model, [inputs], config)
    result = fit(model, stats, target, reference, config=config, calibration=CalibrationConfig())
    assert result.model.has_int8
    for ref, got in zip(run_ort(model.graph, inputs), run_ort(write(result.model), inputs), strict=True):
        assert sqnr_db(ref, got) > 32


@pytest.mark.slow
def test_the_demos_network_is_built_inside_its_budget(demo_dir):
    config = BuildConfig(bench=BenchConfig(duration_s=0.5, max_duration_s=2.0, warmup_s=0.1))
    with build(
        demo_dir / "digits_resnet.onnx",
        config=config,
        precisions="int8",
        calibration=demo_dir / "calibration.npz",
        validation=demo_dir / "validation.npz",
    ) as engine:
        report = engine.report
        with np.load(demo_dir / "validation.npz") as file:
            got = engine.run({"image": file["image"]})["logits"].argmax(axis=1)
            hits = int((got == file["labels"]).sum())
    shipped = next(row for row in report["candidates"] if row["status"] == "shipped")
    assert hits >= 594 * (1 - config.budget.max_drop_ratio)  # the float model reads 594 of 600
    assert shipped["precision"] == engine.precision
    if engine.precision == "int8":
        assert shipped["accuracy"]["float_score"] == pytest.approx(594 / 600)
        assert shipped["against_float"]["hi"] < 1.0
