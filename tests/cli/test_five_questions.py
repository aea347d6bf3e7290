# SPDX-License-Identifier: Apache-2.0
"""Five questions that users of int8 engines ask of other tools, each with its answer here.

They are those of NVIDIA/TensorRT issues 3638, 3724, 3902, 3612 and 3708: a quantized first convolution that
builds on an A10 and not on a T4, int8 slower than floats, an int8 engine of 95 MB where 39 were expected, a
calibration cache that does not apply, and a transformer that post-training quantization destroys.
"""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quantrt.build import build
from quantrt.calibrate.caches.trt_cache import write_cache
from quantrt.config import (
    AssignConfig,
    BenchConfig,
    BuildConfig,
    CalibrationConfig,
    DeviceConfig,
    QuantizeConfig,
)
from quantrt.model.file.save import save_model
from quantrt.quantize.make_cache import make_cache
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.tensorrt import TENSORRT
from quantrt.report.explain import cpu_peaks, gather, times
from quantrt.tactics.timing import Latency
from tests.nets import net, observe, quantized, resnet, samples, weights

build_module = importlib.import_module("quantrt.build")

BENCH = BenchConfig(duration_s=0.05, max_duration_s=0.1, warmup_s=0.01, min_runs=3)
CONFIG = BuildConfig(
    precisions=frozenset({"fp32", "int8"}),
    bench=BENCH,
    calibration=CalibrationConfig(method="minmax"),
    assign=AssignConfig(mixed=False),
    device=DeviceConfig(libraries=("onnxruntime",)),
)
IMAGES = {"x": samples(8, 3, 16, 16)}


@pytest.fixture(autouse=True)
def short_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller probes and fewer runs, of the same kinds."""
    monkeypatch.setattr(cpu_peaks, "SIZE", 256)
    monkeypatch.setattr(cpu_peaks, "SETS_BYTES", (1 << 16, 1 << 20))
    monkeypatch.setattr(times, "RUNS", 5)
    for module in (times, gather):
        monkeypatch.setattr(module, "TIMING", BENCH)


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch):
    """ship("int8"): that precision is twice as fast, whatever the clock says; layers are really timed."""

    def use(precision: str) -> None:
        def timed(candidates, *unused, **options) -> Mapping[str, Latency]:
            return {name: Latency((1.0 if precision in name else 2.0,) * 30) for name in candidates}

        monkeypatch.setattr(build_module, "time_candidates", timed)

    return use


def test_why_does_this_not_build_on_a_t4(folder: Path, quantrt_json, quantrt_text):
    """Four channels in codes to 320 in floats, as its Q/DQ nodes say: there is no such kernel on a T4."""
    text = "net (float[N,4,48,64] x) => (float[N,320,48,64] y) { y = Conv<pads=[1,1,1,1]>(x, w, b) }"
    model = net(text, weights({"w": (320, 4, 3, 3), "b": (320,)}))
    qdq = write(quantized(model, TENSORRT, {"x": samples(2, 4, 48, 64)}, method="minmax"))
    save_model(qdq, folder / "unet.onnx")
    t4, a10 = (quantrt_json("check", "unet.onnx", "--device", gpu)["devices"][0] for gpu in ("t4", "a10"))
    (conv,) = [row for row in t4["regions"] if row["formula"] == "Conv"]
    assert conv["precision"] == "int8" and conv["falls_back"]
    assert "compute capability 75" in conv["reason"]
    assert conv["legal"], "it builds all the same"
    assert all(row["reason"] for row in conv["rejected"])
    (conv,) = [row for row in a10["regions"] if row["formula"] == "Conv"]
    assert not conv["falls_back"] and not conv["reason"]
    said = quantrt_text("check", "unet.onnx", "--device", "t4")
    assert "it builds there all the same" in said and "Triton compiles no int8" in said.replace("\n", " ")


def test_why_is_int8_slower_here(ship, folder: Path, quantrt_json, quantrt_text):
    ship("fp32")
    with build(resnet(), config=CONFIG, calibration=IMAGES) as engine:
        engine.save("float.qrt")
    (int8,) = quantrt_json("explain", "float.qrt")["not_shipped"]
    assert int8["name"] == "onnxruntime int8" and int8["ratio"] == 2.0
    assert int8["reason"] == "slower than onnxruntime fp32"
    assert int8["conversions"] > 0 and int8["conversions_us"] >= 0
    said = quantrt_text("explain", "float.qrt")
    assert "not shipped" in said and "us converting" in said and "slower than" in said.replace("\n", " ")
    ship("int8")
    with build(resnet(), config=CONFIG, calibration=IMAGES) as engine:
        engine.save("int8.qrt")
    against = quantrt_json("explain", "int8.qrt", "--against", "float.qrt")["against"]
    assert (against["precision"], against["name"]) == ("fp32", "float.qrt")
    assert sum(len(row["nodes"]) for row in against["layers"]) >= 5
    assert all(row["more_us"] == row["time_us"] - row["other_us"] for row in against["layers"])
    assert against["conversions_us"] > 0


def test_why_is_this_engine_so_large(ship, folder: Path, quantrt_json, quantrt_text):
    """Most of its weights stayed float: the file says which, how many bytes that is, and why."""
    ship("int8")
    shapes = {"w0": (64, 512), "w1": (512, 512), "w2": (512, 8)}
    text = """net (float[N,64] x) => (float[N,8] y) {
      m0 = MatMul(x, w0) r0 = Relu(m0) m1 = MatMul(r0, w1) r1 = Relu(m1) y = MatMul(r1, w2) }"""
    model = net(text, weights(shapes))
    config = replace(CONFIG, quantize=QuantizeConfig(exclude=("MatMul_2",)))
    with build(model, config=config, calibration={"x": samples(32, 64)}) as engine:
        engine.save("mlp.qrt")
    size = quantrt_json("explain", "mlp.qrt")["size"]
    parts = {row["what"]: row["bytes"] for row in size["parts"]}
    assert sum(parts.values()) == Path("mlp.qrt").stat().st_size
    assert 512 * 512 * 4 <= parts["float32 weights"] < 512 * 512 * 4 + 4096
    # the smaller matrix is compressed with the graph
    assert 64 * 512 + 0.8 * 512 * 8 <= parts["int8 weights"] < 64 * 512 + 512 * 8 + 4096
    (kept,) = size["float_layers"]
    assert kept["bytes"] == 512 * 512 * 4 and "excluded by 'MatMul_2'" in kept["reason"]
    said = quantrt_text("explain", "mlp.qrt")
    assert "what is in the file" in said and "excluded by 'MatMul_2'" in said.replace("\n", " ")


def test_why_does_this_cache_not_apply(folder: Path, quantrt_json, quantrt_text):
    model = resnet()
    save_model(model.graph, folder / "resnet.onnx")
    cache = make_cache(model, observe(model, (TENSORRT,), IMAGES), CalibrationConfig(), "all.cache")
    write_cache(replace(cache, origin=None), folder / "all.cache")
    whole = (folder / "all.cache").read_text()
    lines = [line for line in whole.splitlines(keepends=True) if not line.startswith("r0:")]
    (folder / "partial.cache").write_text("".join(lines))
    found = quantrt_json("inspect", "partial.cache", "--model", "resnet.onnx")["model"]
    assert "r0" in found["missing"] and found["cost_ratio"]["r0"] > 0
    assert all(nodes for nodes in found["missing"]["r0"].values()), "what stays float without it"
    said = quantrt_text("inspect", "partial.cache", "--model", "resnet.onnx")
    assert "of all products" in said and "float because of it" in said
    header, *rest = whole.splitlines(keepends=True)
    (folder / "other.cache").write_text(header + "".join(line.replace(":", "_1:") for line in rest))
    error = quantrt_json("inspect", "other.cache", "--model", "resnet.onnx", code=3)["error"]
    assert "it was made for another graph" in error["message"] and "nearest" in error["got"]
    error = quantrt_json("inspect", "nothing.cache", "--model", "resnet.onnx", code=3)["error"]
    assert "quantrt calibrate" in error["hint"]


BLOCK = """
  n{i} = LayerNormalization<axis = -1>(x{i}, gamma, beta)
  q{i} = MatMul(n{i}, wq)
  k{i} = MatMul(n{i}, wk)
  v{i} = MatMul(n{i}, wv)
  t{i} = Transpose<perm = [0, 2, 1]>(k{i})
  s{i} = MatMul(q{i}, t{i})
  p{i} = Softmax<axis = -1>(s{i})
  m{i} = MatMul(p{i}, v{i})
  o{i} = MatMul(m{i}, wo)
  a{i} = Add(x{i}, o{i})
  f{i} = MatMul(a{i}, w1_{i})
  r{i} = Relu(f{i})
  h{i} = MatMul(r{i}, w2_{i})
  x{next} = Add(a{i}, h{i})"""

TRANSFORMER = (
    "net (float[N,6,16] x0) => (float[N,6,5] y) {"
    + "".join(BLOCK.format(i=i, next=i + 1) for i in range(2))
    + "  y = MatMul(x2, w) }"
)


def transformer():
    """Two blocks; one channel before the last product of the second is 3000 times as large as the others."""
    square = dict.fromkeys(("wq", "wk", "wv", "wo"), (16, 16))
    arrays = weights({**square, "w1_0": (16, 32), "w1_1": (16, 32), "w2_0": (32, 16), "w2_1": (32, 16)})
    arrays |= weights({"w": (16, 5)}, seed=3)
    arrays |= {"gamma": np.ones(16, np.float32), "beta": np.zeros(16, np.float32)}
    arrays["w1_1"][:, 0] *= 3000.0
    arrays["w2_1"][0] /= 3000.0
    return net(TRANSFORMER, arrays)


def test_which_layers_destroy_this_transformer(folder: Path, quantrt_json, quantrt_text):
    model = transformer()
    data = {"x0": samples(16, 6, 16)}
    np.savez(folder / "x.npz", **data)
    save_model(model.graph, folder / "vit.onnx")
    save_model(write(quantized(model, TENSORRT, data, method="minmax")), folder / "int8.onnx")
    words = ("compare", "vit.onnx", "int8.onnx", "--data", "x.npz", "--layers")
    rows = quantrt_json(*words, code=1)["three_way"]["layers"]
    worst = max(rows, key=lambda row: row["share_ratio"])
    product = next(node.name for node in model.graph.graph if node.outputs[0].name == "h1")
    assert worst["name"] == product and worst["share_ratio"] > 0.9
    said = quantrt_text(*words, code=1)
    assert f"next: quantrt build ... --exclude '{product}'" in said
