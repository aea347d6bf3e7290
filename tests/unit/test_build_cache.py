# SPDX-License-Identifier: Apache-2.0
"""Builds on the scales of a calibration cache, for a CPU and for a GPU, for which the CPU stands in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quantrt.build import Event, build
from quantrt.calibrate.caches.trt_cache import TrtCache, read_cache, write_cache
from quantrt.calibrate.collect import collect
from quantrt.config import BenchConfig, BuildConfig, CalibrationConfig, CudaConfig, DeviceConfig
from quantrt.cross_build import cross_build
from quantrt.device import describe_device
from quantrt.errors import DataError, UsageError
from quantrt.gpu import gpu_named
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import make_model
from quantrt.model.model import Model
from quantrt.plan.program import codes_of
from quantrt.plan.program_json import program_from_model
from quantrt.prepare import Job, quantize_for_device
from quantrt.quantize.fit.fit import GIVEN_SCALES
from quantrt.quantize.make_cache import float_activations, make_cache
from quantrt.quantize.qdq.write import write
from quantrt.quantize.quantized_model import QuantizedModel
from quantrt.quantize.targets.tensorrt import TENSORRT
from tests.nets import RESNET, RESNET_SHAPES, dataset, net, quantized, resnet, run_ort, samples, weights

Fits = Mapping[str, QuantizedModel]

IMAGES = {"x": samples(8, 3, 16, 16)}
CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "int8"}),
    bench=BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3),
    calibration=CalibrationConfig(method="minmax"),
)
QUICK = replace(CONFIG, device=DeviceConfig(libraries=("onnxruntime",)))
ON_A_GPU = replace(
    CONFIG,
    device=DeviceConfig(device="cuda"),
    cuda=CudaConfig(builder_optimization_level=0, exclude_tactic_sources=("triton", "cublaslt", "cudnn")),
)


def make(config: CalibrationConfig = CONFIG.calibration) -> TrtCache:
    model = resnet()
    stats = collect(model, float_activations(model), dataset(model, IMAGES), config)
    return make_cache(model, stats, config, "x.cache")


def without(cache: TrtCache, *names: str) -> TrtCache:
    scales = {name: scale for name, scale in cache.scales.items() if name not in names}
    return replace(cache, scales=scales, origin=None)


def fits_of(model: Model, config: BuildConfig, cache: TrtCache, data: Mapping | None = None) -> Fits:
    """The quantized model of each library, as a build makes it."""
    if config.device.device == "cuda":
        model = for_gpu(model)
    job = Job(model, config, describe_device(with_gpu=False), lambda event: None)
    samples_ = None if data is None else dataset(model, data)
    found = quantize_for_device(job, samples_, None, cache)
    return {library: fitted.model for (library, _), fitted in found.fits.items()}


def candidate(report: Mapping, precision: str = "int8") -> list[Mapping]:
    return [row for row in report["candidates"] if row.get("precision") == precision]


def test_a_build_takes_its_ranges_from_a_cache_alone(tmp_path: Path):
    cache = make()
    write_cache(cache, tmp_path / "c.cache")
    with build(resnet(), config=QUICK, calibration_cache=tmp_path / "c.cache") as engine:
        report = engine.report
    assert {row["range_method"] for row in candidate(report)} == {GIVEN_SCALES}
    assert report["calibration"] is None
    assert report["calibration_cache"]["missing"] == {}
    used = {row["tensor"]: row["scale"] for row in report["calibration_cache"]["used"]}
    assert used == {name: cache.scales[name] for name in used}
    assert set(used) >= {"x", "r0", "r1", "r2"}
    assert any("scales are those of" in note for note in report["notes"])


def test_every_library_keeps_the_scales_bit_for_bit():
    cache = make()
    for made in fits_of(resnet(), CONFIG, cache).values():
        assert made.activations
        for name, qparams in made.activations.items():
            assert float(qparams.scale) == cache.scales[name]


def test_gaps_stay_float_and_are_listed():
    cache = without(make(), "r1")
    with build(resnet(), config=QUICK, calibration_cache=cache) as engine:
        report = engine.report
    assert set(report["calibration_cache"]["missing"]) == {"r1"}
    assert any("no scale of 1 tensor ('r1')" in note and "stay float" in note for note in report["notes"])
    for made in fits_of(resnet(), CONFIG, cache).values():
        assert "r1" not in made.activations
        assert "no range for 'r1' in x.cache" in {row.reason for row in made.placement.decisions}


def test_data_fill_the_gaps_and_only_these():
    events: list[Event] = []
    cache, doubled = without(make(), "r1"), {"x": 2 * IMAGES["x"]}
    options = {"calibration": doubled, "on_event": events.append}
    with build(resnet(), config=QUICK, calibration_cache=cache, **options) as engine:
        report = engine.report
    assert report["calibration"]["tensors"] == 1
    assert any("('r1'): observed on data instead" in note for note in report["notes"])
    assert any(event.stage == "calibrating" for event in events)
    for made in fits_of(resnet(), CONFIG, cache, doubled).values():
        assert "r1" in made.activations
        assert float(made.activations["r0"].scale) == cache.scales["r0"], "not the data's"


def test_a_whole_cache_needs_no_pass_over_the_data():
    events: list[Event] = []
    cache = make()
    with build(
        resnet(), config=QUICK, calibration_cache=cache, calibration=IMAGES, on_event=events.append
    ) as engine:
        report = engine.report
    assert not any(event.stage == "calibrating" for event in events)
    assert report["calibration"] is None
    assert not any("biases are not corrected" in note for note in report["notes"]), "the data serve for that"


def test_random_ranges_brand_the_engine_by_way_of_a_cache():
    cache = make()
    assert cache.origin is not None
    random = replace(cache, origin=replace(cache.origin, is_random=True))
    for given, is_calibrated in ((cache, True), (random, False)):
        with build(resnet(), config=QUICK, calibration_cache=given) as engine:
            is_int8 = engine.precision == "int8"
            assert engine.plan.is_calibrated is (is_calibrated or not is_int8)


def test_what_cannot_be_used_is_said_before_anything_takes_time(tmp_path: Path):
    model = resnet()
    with pytest.raises(UsageError, match="int8 and fp8 only"):
        build(model, config=replace(CONFIG, precisions=frozenset({"fp32"})), calibration_cache=make())
    with pytest.raises(UsageError, match="random data"):
        random = replace(CONFIG, calibration=CalibrationConfig(calib_random=True))
        build(model, config=random, calibration_cache=make())
    with pytest.raises(DataError, match="no such file"):
        build("no.onnx", config=CONFIG, calibration_cache=tmp_path / "no.cache")
    own = make_model(write(quantized(model, TENSORRT, IMAGES)))
    with pytest.raises(UsageError, match="quantized already"):
        build(own, config=CONFIG, calibration_cache=make())


def on_a_grid_of_twos() -> Model:
    """The residual network with weights and biases on grids of powers of two.

    With scales that are powers of two as well, every sum, product and quotient of a layer is exact in
    float32, so that codes are the same in whichever order they are computed.
    """
    arrays = weights(RESNET_SHAPES)
    for name, array in arrays.items():
        if name.startswith("w"):
            rows = array.reshape(len(array), -1)
            steps = np.rint(rows * (127 / np.abs(rows).max(axis=1, keepdims=True)))
            arrays[name] = (steps / 256).astype(np.float32).reshape(array.shape)
        else:
            arrays[name] = (np.rint(array * 16) / 16).astype(np.float32)
    return net(RESNET, arrays)


def power_of_two(scale: float) -> float:
    return float(2.0 ** np.rint(np.log2(scale)))


CONVOLVED = ("x", "r0", "r1")
"""The input and what two convolutions make of it; behind a sum, rules of the targets differ."""

PAIRS = ((CONFIG, "onnxruntime"), (ON_A_GPU, "cuda"))


def codes_on_a_gpu(model: Model, made: QuantizedModel, inputs: Mapping) -> dict[str, np.ndarray]:
    """Every buffer of codes of the CUDA program, by the value they are of; the CPU computes it."""
    pytest.importorskip("torch", reason="programs run in torch")
    from quantrt.runtime.cuda.executor import CudaExecutor
    from quantrt.tactics.cuda.lower import CudaLowering

    lowering = CudaLowering(for_gpu(model), ON_A_GPU.cuda, inputs, gpu=gpu_named("H200"), device="cpu")
    program = program_from_model(lowering.lower(made, "fp32")[0])
    buffers = {buffer for step in program.steps for buffer in step.outputs}
    names = [name for name in made.activations if codes_of(name) in buffers]
    taps = tuple((f"{name} codes", codes_of(name), "int8") for name in names)
    specs = [TensorSpec(name, "int8", None) for name, _, _ in taps]
    executor = CudaExecutor(
        replace(program, outputs=(*program.outputs, *taps)),
        model.inputs,
        [*model.outputs, *specs],
        device="cpu",
    )
    try:
        outputs = executor.run(inputs)
    finally:
        executor.close()
    return {name: outputs[f"{name} codes"] for name in names}


def carried(cache: TrtCache, folder: Path) -> TrtCache:
    """The cache as it is read from a file that another machine wrote."""
    write_cache(cache, folder / "carried.cache")
    return read_cache(folder / "carried.cache")


def test_a_cache_made_on_a_cpu_gives_the_same_grids_on_a_gpu(tmp_path: Path):
    cache = carried(make(), tmp_path)
    cuda = fits_of(resnet(), ON_A_GPU, cache)["cuda"]
    on_cpu = fits_of(resnet(), CONFIG, cache)
    assert set(on_cpu) == {"onnxruntime", "openvino"}
    for made in on_cpu.values():
        shared = cuda.activations.keys() & made.activations.keys()
        assert shared >= {"x", "r0", "r1", "r2"}
        for name in shared:
            grid = made.activations[name]
            assert grid.scale.tobytes() == cuda.activations[name].scale.tobytes()
            assert int(grid.zero_point) == (128 if grid.dtype.name == "uint8" else 0)
        if made.target.weight_qmax == cuda.target.weight_qmax:
            both = made.weights.keys() & cuda.weights.keys()
            assert len(both) == 5
            assert all(np.array_equal(made.weights[use].codes, cuda.weights[use].codes) for use in both)


def test_a_cache_made_on_a_cpu_gives_the_same_codes_on_a_gpu(tmp_path: Path):
    model = on_a_grid_of_twos()
    stats = collect(model, float_activations(model), dataset(model, IMAGES), CONFIG.calibration)
    cache = make_cache(model, stats, CONFIG.calibration, "x.cache")
    rounded = {name: power_of_two(scale) for name, scale in cache.scales.items()}
    cache = carried(replace(cache, scales=rounded, origin=None), tmp_path)
    ort, cuda = (fits_of(model, config, cache)[name] for config, name in PAIRS)
    if ort.target.weight_qmax != cuda.target.weight_qmax:
        pytest.skip("the int8 weights of this CPU have 7 bits")
    x = {"x": samples(2, 3, 16, 16, seed=5)}
    on_cpu, on_gpu = codes_on_a_cpu(ort, CONVOLVED, x), codes_on_a_gpu(model, cuda, x)
    for name in CONVOLVED:
        assert len(np.unique(on_gpu[name])) > 50
        assert np.array_equal(on_cpu[name].astype(int) - 128, on_gpu[name]), name


def test_codes_of_any_weights_differ_by_float_rounding_alone(tmp_path: Path):
    cache, x = carried(make(), tmp_path), {"x": samples(2, 3, 16, 16, seed=5)}
    ort, cuda = (fits_of(resnet(), config, cache)[name] for config, name in PAIRS)
    if ort.target.weight_qmax != cuda.target.weight_qmax:
        pytest.skip("the int8 weights of this CPU have 7 bits")
    on_cpu, on_gpu = codes_on_a_cpu(ort, CONVOLVED, x), codes_on_a_gpu(resnet(), cuda, x)
    steps = {name: np.abs(on_cpu[name].astype(int) - 128 - on_gpu[name]) for name in CONVOLVED}
    assert not steps["x"].any(), "one division and one rounding"
    assert steps["r0"].max() <= 1
    assert np.count_nonzero(steps["r0"]) <= 0.002 * steps["r0"].size


def codes_on_a_cpu(made: QuantizedModel, names: Sequence[str], inputs: Mapping) -> dict[str, np.ndarray]:
    """The codes of activations in ONNX Runtime."""
    graph = write(made)
    found = {}
    for name in names:
        rounded = next(node for node in graph.graph if node.name == f"{name}_dequantize")
        found[name] = rounded.inputs[0]
        graph.graph.outputs.append(rounded.inputs[0])
    outputs = run_ort(graph, inputs)[-len(names) :]
    return dict(zip(names, outputs, strict=True))


def test_an_engine_for_a_gpu_that_is_not_here_takes_a_cache():
    pytest.importorskip("triton", reason="kernels are compiled")
    cache = without(make(), "r1")
    config = replace(ON_A_GPU, cuda=replace(ON_A_GPU.cuda, gpu="H200"))
    plan = cross_build(resnet(), config=config, calibration_cache=cache, calibration=IMAGES)
    assert plan.report["calibration_cache"]["path"] == "x.cache"
    assert set(plan.report["calibration_cache"]["missing"]) == {"r1"}
    assert any("('r1'): observed on data instead" in note for note in plan.report["notes"])
