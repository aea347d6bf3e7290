# SPDX-License-Identifier: Apache-2.0
"""Caches made of statistics."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from quantrt.calibrate.caches.trt_cache import TrtCache, read_cache, write_cache
from quantrt.calibrate.collect import collect
from quantrt.calibrate.stats import Stats
from quantrt.config import CalibrationConfig, QuantizeConfig
from quantrt.model.model import Model
from quantrt.quantize.cache_match import match_cache
from quantrt.quantize.make_cache import float_activations, make_cache
from quantrt.quantize.quantize import quantize
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from quantrt.quantize.targets.tensorrt import TENSORRT
from tests.nets import dataset, net, resnet, samples, weights

IMAGES = {"x": samples(4, 3, 16, 16)}

READ_BY_MODELOPT = """
import json, sys
from modelopt.onnx.quantization.calib_utils import import_scales_from_calib_cache
print(json.dumps({k: v.hex() for k, v in import_scales_from_calib_cache(sys.argv[1]).items()}))
"""


def everything(model: Model, inputs: dict) -> Stats:
    return collect(model, float_activations(model), dataset(model, inputs), CalibrationConfig())


@pytest.fixture
def cache() -> TrtCache:
    model = resnet()
    return make_cache(model, everything(model, IMAGES), CalibrationConfig(), "x.cache")


def test_every_float_tensor_has_a_scale(cache: TrtCache):
    model = resnet()
    made = [value.name for node in model.graph.graph for value in node.outputs]
    assert list(cache.scales) == ["x", *made]
    assert cache.notes == ()


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile", "mse", "auto"])
def test_a_cache_carries_the_ranges_of_a_build_from_data_bit_for_bit(method: str):
    model, config = resnet(), CalibrationConfig(method=method)
    stats = everything(model, IMAGES)
    given = match_cache(model, make_cache(model, stats, config, "x"), (TENSORRT, CUDA)).given
    for target in (TENSORRT, CUDA):
        measured = quantize(model, stats, target, QuantizeConfig(), config)
        cached = quantize(model, None, target, QuantizeConfig(), config, given=given)
        assert cached.activations.keys() == measured.activations.keys()
        shifted = {name for name, qparams in measured.activations.items() if np.any(qparams.zero_point)}
        assert not shifted or target is CUDA, "TensorRT's caches have no zero points: a GPU's from data may"
        for name, qparams in measured.activations.items():
            found = cached.activations[name]
            assert not np.any(found.zero_point), "codes of a cache are the same on every device"
            if name not in shifted:
                assert found.scale.tobytes() == qparams.scale.tobytes()
        assert len(shifted) < len(measured.activations)


def test_pools_and_reshapes_share_a_scale_bit_for_bit(cache: TrtCache):
    assert cache.scales["pool"] == cache.scales["r2"]
    assert cache.scales["flat"] == cache.scales["mean"]
    assert cache.scales["sum"] != cache.scales["r2"]


def test_names_of_the_file_are_there_where_their_values_are():
    text = """net (float[N,3,8,8] x) => (float[N,4,8,8] y) {
      c = Conv<pads=[1,1,1,1]>(x, w) i = Identity(c) r = Relu(i) y = Conv<pads=[1,1,1,1]>(r, v) }"""
    model = net(text, weights({"w": (4, 3, 3, 3), "v": (4, 4, 3, 3)}))
    cache = make_cache(model, everything(model, {"x": samples(2, 3, 8, 8)}), CalibrationConfig(), "x")
    assert cache.scales["i"] == cache.scales["c"]


def test_a_tensor_of_zeros_has_scale_one():
    model = resnet()
    stats = everything(model, {"x": np.zeros((2, 3, 16, 16), np.float32)})
    assert make_cache(model, stats, CalibrationConfig(), "x").scales["x"] == 1.0


def test_what_was_not_observed_is_said():
    model = resnet()
    names = ("x", "r0")
    stats = collect(model, names, dataset(model, IMAGES), CalibrationConfig())
    cache = make_cache(model, stats, CalibrationConfig(), "x")
    assert set(cache.scales) == set(names)
    assert "12 float tensors have no scale, such as 'c0'" in cache.notes[0]


def test_where_it_comes_from_goes_with_it(cache: TrtCache, tmp_path: Path):
    write_cache(cache, tmp_path / "x.cache")
    found = read_cache(tmp_path / "x.cache")
    assert found.origin == cache.origin
    assert found.origin is not None
    assert found.origin.fingerprint == resnet().fingerprint
    assert (found.origin.samples, found.origin.method, found.origin.is_random) == (4, "auto", False)
    match = match_cache(resnet(), found, (*TARGETS, CUDA))
    assert match.missing == match.unknown == {}


def test_names_with_colons_are_said_to_be_cut_by_onnxruntime():
    text = 'net (float[N,4] "onnx::x_1") => (float[N,4] y) { y = MatMul("onnx::x_1", w) }'.replace('"', "")
    model = net(text.replace("onnx::x_1", "x"), weights({"w": (4, 4)}))
    model.graph.graph.inputs[0].name = "onnx::x_1"
    stats = everything(net(text.replace("onnx::x_1", "x"), weights({"w": (4, 4)})), {"x": samples(2, 4)})
    tensors = {("onnx::x_1" if name == "x" else name): stats.tensors[name] for name in stats.tensors}
    stats = Stats(tensors, stats.samples, stats.data_hash, stats.fingerprint)
    assert any("hold a colon" in note for note in make_cache(model, stats, CalibrationConfig(), "x").notes)


def test_model_optimizer_reads_it(cache: TrtCache, tmp_path: Path):
    import json

    python = os.environ.get("QUANTRT_TEST_MODELOPT", sys.executable)
    here = subprocess.run([python, "-c", "import modelopt.onnx"], capture_output=True, text=True, timeout=120)
    if here.returncode != 0:
        pytest.skip(
            "nvidia-modelopt cannot be imported here (QUANTRT_TEST_MODELOPT names a Python that has it)"
        )
    path = tmp_path / "x.cache"
    write_cache(cache, path)
    done = subprocess.run(
        [python, "-c", READ_BY_MODELOPT, str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    read = {name: float.fromhex(text) for name, text in json.loads(done.stdout.splitlines()[-1]).items()}
    assert read == {f"{name}_scale": scale for name, scale in cache.scales.items()}
