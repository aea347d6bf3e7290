# SPDX-License-Identifier: Apache-2.0
"""`--recipe` on quantize and build: what it sets, what counts before it, and what it is not for."""

from pathlib import Path

import numpy as np
import onnx
import pytest

FAST = ("--warmup", "0.01", "--duration", "0.05", "--max-duration", "0.1", "--min-runs", "3")
DATA = ("--calib-data", "calib.npz")


@pytest.fixture
def two_products(folder: Path) -> None:
    """s.onnx, two products with weights, and s.npz, 64 samples for it."""
    rng = np.random.default_rng(3)
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,128] x) => (float[n,64] y)
      { h = MatMul(x, v) t = Tanh(h) y = MatMul(t, w) }"""
    model = onnx.parser.parse_model(text)
    for name, shape in (("v", (128, 128)), ("w", (128, 64))):
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(rng.normal(0, 0.1, shape).astype("f"), name)
        )
    onnx.save(model, "s.onnx")
    np.savez("s.npz", x=rng.normal(size=(64, 128)).astype(np.float32))


def q_types(path: str) -> set[int]:
    """Types of the zero points of a Q/DQ model's activations."""
    model = onnx.load(path)
    constants = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {constants[n.input[2]] for n in model.graph.node if n.op_type == "QuantizeLinear"}


def test_a_recipe_says_the_target_and_an_option_counts_before_it(folder: Path, quantrt_json):
    made = quantrt_json("quantize", "model.onnx", *DATA, "--recipe", "tensorrt", "-o", "t.onnx")
    assert made["target"] == "tensorrt" and q_types("t.onnx") == {onnx.TensorProto.INT8}
    words = ("quantize", "model.onnx", *DATA, "--recipe", "tensorrt", "--target", "ort", "-o", "o.onnx")
    assert quantrt_json(*words)["target"] == "ort" and q_types("o.onnx") == {onnx.TensorProto.UINT8}


def test_the_default_recipe_writes_what_no_recipe_writes(folder: Path, quantrt_json):
    quantrt_json("quantize", "model.onnx", *DATA, "-o", "a.onnx")
    quantrt_json("quantize", "model.onnx", *DATA, "--recipe", "default", "-o", "b.onnx")
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()


def test_options_of_a_file_are_taken(folder: Path, quantrt_json):
    Path("mine.toml").write_text('version = 1\n[quantize]\nexclude_types = ["Gemm"]\n', encoding="utf-8")
    plain = quantrt_json("quantize", "model.onnx", *DATA, "-o", "a.onnx")
    mine = quantrt_json("quantize", "model.onnx", *DATA, "--recipe", "mine.toml", "-o", "b.onnx")
    assert mine["int8_nodes"] < plain["int8_nodes"]


def test_an_engine_is_built_in_the_precision_and_library_of_a_recipe(folder: Path, quantrt_json):
    words = ("build", "model.onnx", *DATA, "--valid-data", "valid.npz", *FAST)
    quantrt_json(*words, "--recipe", "openvino", "-o", "m.qrt", "--report", "r.json")
    report = (folder / "r.json").read_text(encoding="utf-8")
    assert "openvino int8" in report and "onnxruntime" not in report.partition('"candidates"')[2][:4000]


@pytest.mark.parametrize(
    ("words", "says", "tries"),
    [
        (("quantize", "model.onnx", "--recipe", "acurate", "-o", "q.onnx"), "no recipe", "accurate"),
        (("quantize", "model.onnx", "--recipe", "fp8", "-o", "q.onnx"), "fp8", "quantrt build"),
        (("build", "model.onnx", "--recipe", "tensorrt", "-o", "q.qrt"), "TensorRT", "quantrt quantize"),
        (("build", "model.onnx", "--recipe", "none.toml", "-o", "q.qrt"), "no file", "default.toml"),
    ],
)
def test_what_a_recipe_is_not_for_is_said_before_any_work(words, says, tries, folder: Path, quantrt_json):
    error = quantrt_json(*words, *DATA, code=2)["error"]
    assert says in error["message"] and tries in error["hint"]


def test_smoothing_by_a_recipe_reaches_the_model(folder: Path, quantrt_json):
    rng = np.random.default_rng(3)
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,16] x) => (float[n,8] y)
      { h = Mul(x, outliers) t = Tanh(h) g = Mul(h, t) y = MatMul(g, w) }"""
    model = onnx.parser.parse_model(text)
    outliers = np.where(np.arange(16) == 3, 100, 1).astype(np.float32)
    w = (rng.normal(size=(16, 8)) / outliers[:, None]).astype(np.float32)
    for name, array in (("outliers", outliers), ("w", w)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, "s.onnx")
    np.savez("s.npz", x=rng.normal(size=(120, 16)).astype(np.float32))
    nodes = {}
    for recipe in ("default", "accurate"):
        quantrt_json(
            "quantize", "s.onnx", "--calib-data", "s.npz", "--recipe", recipe, "-o", f"{recipe}.onnx"
        )
        nodes[recipe] = [node.name for node in onnx.load(f"{recipe}.onnx").graph.node]
    assert "g_smoothed" in nodes["accurate"] and "g_smoothed" not in nodes["default"]


def test_scales_per_token_need_no_data(two_products: None, quantrt_json, quantrt_text):
    Path("rows.toml").write_text('version = 1\n[quantize]\nactivations = "per-token"\n', encoding="utf-8")
    words = ("quantize", "s.onnx", "--recipe", "rows.toml", "-o")
    made = quantrt_json(*words, "r.onnx")
    assert made["products_per_token"] == 2 and made["quantized_activations"] == 0
    assert "scales per token before 2 products" in quantrt_text(*words, "r.onnx", "--target", "openvino")
    assert quantrt_json("compare", "s.onnx", "r.onnx", "--data", "s.npz", "--min-sqnr", "35")["passed"]
    quantrt_json(*words, "t.onnx", "--target", "tensorrt")
    assert quantrt_json("inspect", "t.onnx", "--lint", "tensorrt")["passed"]
    build = ("build", "s.onnx", "--int8", "--activations", "per-token", *FAST)
    quantrt_json(*build, "--valid-data", "s.npz", "-o", "r.qrt", "--report", "r.json")
    assert "onnxruntime int8" in Path("r.json").read_text(encoding="utf-8"), "a candidate"


def test_weights_alone_are_written_in_4_bits(two_products: None, quantrt_json, quantrt_text):
    words = ("quantize", "s.onnx", "--recipe", "weight-only-int4", "--calib-data", "s.npz", "-o", "w.onnx")
    made = quantrt_json(*words)
    assert (
        made["products"] == 2
        and made["group_size"] == 64
        and made["size_bytes"] < 0.2 * made["float_size_bytes"]
    )
    assert {node.op_type for node in onnx.load("w.onnx").graph.node} >= {"MatMulNBits"}
    compared = quantrt_json("compare", "s.onnx", "w.onnx", "--data", "s.npz", "--min-sqnr", "14")
    assert compared["passed"]
    assert "4 bits" in quantrt_text(*words[:-1], "n.onnx", "--weight-rounding", "nearest")
    blocks = quantrt_json(*words[:-1], "b.onnx", "--target", "openvino")
    assert blocks["target"] == "openvino" and blocks["size_bytes"] < 0.2 * made["float_size_bytes"]
    assert {node.op_type for node in onnx.load("b.onnx").graph.node} == {"DequantizeLinear", "MatMul", "Tanh"}
    assert quantrt_json(*words[:-1], "t.onnx", "--target", "tensorrt")["products"] == 2
    assert quantrt_json("inspect", "t.onnx", "--lint", "tensorrt")["passed"]
    build = ("build", "s.onnx", "--recipe", "weight-only-int4", "--calib-data", "s.npz", *FAST)
    built = quantrt_json(*build, "--max-drop", "0.05", "-o", "w.qrt", "--report", "r.json")
    assert built["precision"] == "int4" and Path("w.qrt").stat().st_size < 0.5 * Path("s.onnx").stat().st_size
    layers = {
        row["op_type"]: row["precision"] for row in quantrt_json("inspect", "w.qrt", "--layers")["layers"]
    }
    assert layers == {"MatMul": "int4", "Tanh": "fp32"}
    assert "asked for by its size" in Path("r.json").read_text(encoding="utf-8")
    quantrt_json("compare", "w.onnx", "w.qrt", "--data", "s.npz", "--min-sqnr", "60")
    strict = quantrt_json(*build, "--max-drop", "0.000001", "-o", "f.qrt")
    assert strict["precision"] == "fp32", "outside the budget, the float engine is shipped"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--weights", "int4", "--ranges", "x.ranges"), "no use"),
        (
            (
                "--weights",
                "int4",
            ),
            "without samples",
        ),
        (("--group-size", "32", *DATA), "4 bits"),
        (("--weights", "int4", "--group-size", "33"), "group size"),
        (("--weights", "int5"), "int5"),
    ],
)
def test_what_weights_in_4_bits_are_not_for(words, says, folder: Path, quantrt_json):
    error = quantrt_json("quantize", "model.onnx", *words, "-o", "q.onnx", code=2)["error"]
    assert says in error["message"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*DATA, "--int8"), "not with int8"),
        ((*DATA, "--library", "openvino"), "ONNX Runtime"),
        (("--calib-random",), "random data"),
    ],
)
def test_weights_in_4_bits_go_with_floats_in_one_library(words, says, folder: Path, quantrt_json):
    error = quantrt_json("build", "model.onnx", "--weights", "int4", *words, "-o", "q.qrt", code=2)["error"]
    assert says in error["message"]
