# SPDX-License-Identifier: Apache-2.0
"""Each verb on a small model: what it writes, what it says, what it refuses."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from quantrt.model.file.save import save_model
from tests.nets import net

FAST = ("--warmup", "0.01", "--duration", "0.05", "--max-duration", "0.1", "--min-runs", "3")


def test_calibrate_writes_ranges(folder: Path, quantrt_json):
    data = quantrt_json("calibrate", "model.onnx", "--calib-data", "calib.npz", "-o", "m.ranges")
    assert (folder / "m.ranges").is_file()
    assert data["samples"] == 20
    assert {"image", "r"} <= {row["name"] for row in data["tensors"]}
    again = quantrt_json("inspect", "m.ranges")
    assert again["tensors"] == data["tensors"]


def test_merged_halves_are_the_whole(folder: Path, quantrt_json):
    with np.load("calib.npz") as arrays:
        np.savez("a.npz", image=arrays["image"][:7])
        np.savez("b.npz", image=arrays["image"][7:])
    for part in ("calib", "a", "b"):
        quantrt_json("calibrate", "model.onnx", "--calib-data", f"{part}.npz", "-o", f"{part}.ranges")
    merged = quantrt_json("calibrate", "--merge", "a.ranges", "b.ranges", "-o", "ab.ranges")
    assert merged["tensors"] == quantrt_json("inspect", "calib.ranges")["tensors"]
    assert Path("ab.ranges").read_bytes() == Path("calib.ranges").read_bytes()


def test_a_part_that_is_merged_twice_is_told_of(folder: Path, quantrt_json):
    quantrt_json("calibrate", "model.onnx", "--calib-data", "calib.npz", "-o", "a.ranges")
    Path("b.ranges").write_bytes(Path("a.ranges").read_bytes())
    merged = quantrt_json("calibrate", "--merge", "a.ranges", "b.ranges", "-o", "ab.ranges")
    note = "'b.ranges' is of the same samples as 'a.ranges': they count again"
    assert merged["samples"] == 40 and note in merged["notes"]
    assert note in quantrt_json("inspect", "ab.ranges")["notes"]


def test_random_ranges_are_branded(folder: Path, quantrt_text):
    out = quantrt_text("calibrate", "model.onnx", "--calib-random", "--max-samples", "4", "-o", "m.ranges")
    assert "random" in out
    assert "random" in quantrt_text("inspect", "m.ranges", "--layers")


@pytest.mark.parametrize("target", ["ort", "openvino", "tensorrt"])
def test_quantize_writes_standard_onnx(target: str, folder: Path, quantrt_json):
    words = ("quantize", "model.onnx", "--calib-data", "calib.npz", "--target", target, "-o", "q.onnx")
    data = quantrt_json(*words)
    model = onnx.load("q.onnx")
    onnx.checker.check_model(model)
    assert data["int8_nodes"] >= 2
    assert any(node.op_type == "DequantizeLinear" for node in model.graph.node)
    weights = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert onnx.TensorProto.INT8 in weights.values()


def test_a_table_of_codes_is_picked_from_before_it_is_dequantized(tmp_path: Path, quantrt_json, rng):
    """In ONNX Runtime alone: there a DequantizeLinear before the Gather computes every row in every run."""
    text = "net (int64[N,4] i) => (float[N,4,8] y) { e = Gather(t, i) y = MatMul(e, w) }"
    arrays = {"t": rng.standard_normal((2048, 32)), "w": rng.standard_normal((32, 8))}
    model = net(text, {name: array.astype(np.float32) for name, array in arrays.items()})
    save_model(model.graph, tmp_path / "t.onnx")
    np.savez(tmp_path / "i.npz", i=rng.integers(0, 2048, (64, 4)))
    made = {}
    for target in ("ort", "openvino", "tensorrt"):
        path = tmp_path / f"{target}.onnx"
        quantrt_json(
            "quantize", str(tmp_path / "t.onnx"), "--calib-data", str(tmp_path / "i.npz"), "--target", target,
            "-o", str(path),
        )  # fmt: skip
        made[target] = onnx.load(path)
    picked = {
        target: [
            tensor.data_type
            for node in graph.graph.node
            if node.op_type == "Gather"
            for tensor in graph.graph.initializer
            if tensor.name == node.input[0]
        ]
        for target, graph in made.items()
    }
    codes, floats = onnx.TensorProto.INT8, onnx.TensorProto.FLOAT
    assert picked == {"ort": [codes, floats], "openvino": [], "tensorrt": [floats]}
    (table,) = (node for node in made["openvino"].graph.node if node.op_type == "Gather")
    (maker,) = (node for node in made["openvino"].graph.node if node.output[0] == table.input[0])
    assert maker.op_type == "DequantizeLinear"


def test_ranges_save_the_pass_over_the_data(folder: Path, quantrt_json):
    quantrt_json("calibrate", "model.onnx", "--calib-data", "calib.npz", "-o", "m.ranges")
    both = ("--ranges", "m.ranges", "--calib-data", "calib.npz")
    quantrt_json("quantize", "model.onnx", *both, "-o", "a.onnx")
    quantrt_json("quantize", "model.onnx", "--calib-data", "calib.npz", "-o", "b.onnx")
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()


def test_ranges_alone_leave_the_biases_and_say_so(folder: Path, quantrt_json):
    quantrt_json("calibrate", "model.onnx", "--calib-data", "calib.npz", "-o", "m.ranges")
    data = quantrt_json("quantize", "model.onnx", "--ranges", "m.ranges", "-o", "a.onnx")
    assert any("biases are not corrected" in note for note in data["notes"])
    assert quantrt_json("compare", "model.onnx", "a.onnx", "--data", "valid.npz")["passed"] is True


def test_random_ranges_brand_the_model(folder: Path, quantrt_text):
    assert "uncalibrated" in quantrt_text("quantize", "model.onnx", "--calib-random", "-o", "q.onnx")


def between_two(channels: int) -> None:
    """three.onnx: a convolution of so many channels between two others."""
    rng, (read, made) = np.random.default_rng(0), ((8, channels), (channels, 8))
    model = onnx.load("model.onnx")
    for name, (inputs, outputs) in (("w3", read), ("w4", made), ("w5", (8, 8))):
        weight = rng.normal(size=(outputs, inputs, 3, 3)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    layers = (("before", "r", "w3", "r2"), ("second", "r2", "w4", "r3"), ("third", "r3", "w5", "r4"))
    for place, (name, reads, weight, makes) in enumerate(layers, start=2):
        node = onnx.helper.make_node("Conv", [reads, weight], [makes], name, pads=[1, 1, 1, 1])
        model.graph.node.insert(place, node)
    model.graph.node[0].name, model.graph.node[5].input[0] = "first", "r4"
    onnx.save(model, "three.onnx")


def test_a_layer_left_float_between_two_others_is_float_in_a_session_without_options(
    folder: Path, quantrt_json
):
    between_two(8)
    words = ("quantize", "three.onnx", "--calib-data", "calib.npz", "-o", "q.onnx", "--exclude", "second")
    assert not quantrt_json(*words)["notes"]
    session, plain = (onnxruntime.SessionOptions() for _ in range(2))
    session.add_session_config_entry("optimization.disable_specified_optimizers", "WeightBiasQuantization")
    with np.load("valid.npz") as arrays:
        inputs = {"image": arrays["image"]}
    wanted, got = (
        onnxruntime.InferenceSession("q.onnx", one).run(None, inputs)[0] for one in (session, plain)
    )
    np.testing.assert_array_equal(got, wanted)


def test_a_layer_that_onnx_runtime_would_round_again_is_told(folder: Path, quantrt_json):
    between_two(1)
    words = ("quantize", "three.onnx", "--calib-data", "calib.npz", "-o", "q.onnx", "--exclude", "second")
    (note,) = quantrt_json(*words)["notes"]
    assert "makes 'second' int8" in note and "disable_specified_optimizers=WeightBiasQuantization" in note
    assert not quantrt_json(*words[:-1], "first")["notes"], "it reads floats"
    assert not quantrt_json(*words, "--target", "openvino")["notes"], "no optimizer of ONNX Runtime there"


def test_a_model_without_anything_to_quantize_is_refused(folder: Path, quantrt_json):
    quantrt_json("quantize", "model.onnx", "--calib-data", "calib.npz", "-o", "q.onnx")
    document = quantrt_json("calibrate", "q.onnx", "--calib-data", "calib.npz", "-o", "q.ranges", code=3)
    assert "quantized already" in document["error"]["got"]
    words = ("quantize", "model.onnx", "--calib-data", "calib.npz", "-o", "none.onnx")
    excluded = [word for kind in ("Conv", "Gemm", "GlobalAveragePool") for word in ("--exclude-type", kind)]
    assert "no node" in quantrt_json(*words, *excluded, code=3)["error"]["message"]
    assert not Path("none.onnx").exists()


def test_ranges_of_another_checkpoint_or_model_are_refused(folder: Path, quantrt_json):
    quantrt_json("calibrate", "model.onnx", "--calib-data", "calib.npz", "-o", "m.ranges")
    model = onnx.load("model.onnx")
    model.graph.initializer[1].raw_data = bytes(len(model.graph.initializer[1].raw_data))
    onnx.save(model, "trained.onnx")
    model.graph.node[1].op_type = "Sigmoid"
    onnx.save(model, "other.onnx")
    for name, says in (("trained", "another checkpoint"), ("other", "another model")):
        words = ("quantize", f"{name}.onnx", "--ranges", "m.ranges", "-o", "q.onnx")
        assert says in quantrt_json(*words, code=3)["error"]["message"]
    assert not Path("q.onnx").exists()


def test_run_equals_onnxruntime(folder: Path, quantrt_json):
    import onnxruntime

    data = quantrt_json("run", "model.onnx", "--inputs", "valid.npz", "--batch-size", "8", "-o", "out.npz")
    assert data["samples"] == 30
    with np.load("valid.npz") as arrays, np.load("out.npz") as got:
        session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
        (want,) = session.run(None, {"image": arrays["image"]})
        assert got["logits"].shape == (30, 10)
        np.testing.assert_allclose(got["logits"], want, rtol=1e-4, atol=1e-5)


def test_run_leaves_out_the_padding_of_a_fixed_batch(folder: Path, quantrt_json):
    model = onnx.load("model.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].ClearField("dim_param")
        value.type.tensor_type.shape.dim[0].dim_value = 8
    onnx.save(model, "fixed.onnx")
    quantrt_json("run", "fixed.onnx", "--inputs", "valid.npz", "-o", "fixed.npz")
    quantrt_json("run", "model.onnx", "--inputs", "valid.npz", "--batch-size", "8", "-o", "free.npz")
    with np.load("fixed.npz") as fixed, np.load("free.npz") as free:
        assert fixed["logits"].shape == (30, 10)
        np.testing.assert_allclose(fixed["logits"], free["logits"], rtol=1e-4, atol=1e-5)
    assert quantrt_json("bench", "fixed.onnx", *FAST)["batch"] == 8
    assert (
        "batches of 8 only" in quantrt_json("bench", "fixed.onnx", "--batch", "2", code=2)["error"]["message"]
    )


def test_bench_of_several_files(folder: Path, quantrt_json, quantrt_text):
    data = quantrt_json("bench", "model.onnx", "model.onnx", "--batch", "4", *FAST)
    assert data["batch"] == 4
    first, second = data["files"]
    assert first["runs"] == second["runs"] >= 3
    assert first["min_ms"] <= first["median_ms"] <= first["max_ms"]
    assert first["samples_per_s"] == pytest.approx(4000 / first["median_ms"])
    (ratio,) = data["ratios"]
    assert ratio["speedup_ratio"] > 0
    assert data["peak_memory"]["host_bytes"] > 1 << 20
    assert data["peak_memory"]["device_bytes"] is None
    out = quantrt_text("bench", "model.onnx", "model.onnx", "--data", "valid.npz", *FAST)
    assert "speed against model.onnx" in out
    assert "peak memory of this process: " in out


def test_bench_holds_files_to_a_speed(folder: Path, quantrt_json):
    words = ("bench", "model.onnx", "model.onnx", *FAST)
    assert quantrt_json(*words, "--min-speed", "0.000001")["passed"] is True
    assert quantrt_json(*words, "--min-speed", "1000000", "--min-runs", "40", code=1)["passed"] is False
    assert "passed" not in quantrt_json(*words)
    alone = quantrt_json("bench", "model.onnx", "--min-speed", "1", *FAST, code=2)["error"]
    assert alone["hint"] == "quantrt bench BASE model.onnx --min-speed 1"
    assert "above 0" in quantrt_json(*words, "--min-speed", "-1", code=2)["error"]["expected"]


def test_a_ratio_of_different_models_is_noted(folder: Path, quantrt_json):
    model = onnx.load("model.onnx")
    model.graph.input[0].name = model.graph.node[0].input[0] = "photo"
    onnx.save(model, "other.onnx")
    notes = quantrt_json("bench", "model.onnx", "model.onnx", "other.onnx", *FAST)["notes"]
    assert [note for note in notes if "different models" in note] == [
        "other.onnx takes other inputs than model.onnx: they are different models"
    ]
    np.savez("photo.npz", photo=np.zeros((2, 3, 8, 8), np.float32))
    refused = quantrt_json("compare", "model.onnx", "other.onnx", "--data", "photo.npz", code=2)["error"]
    assert "they take different inputs" in refused["message"], "whichever of them the data are of"


def test_bench_wants_enough_samples(folder: Path, quantrt_json):
    document = quantrt_json("bench", "model.onnx", "--batch", "99", "--data", "valid.npz", *FAST, code=3)
    assert "batch of 99" in document["error"]["message"]


def test_compare_passes_and_fails(folder: Path, quantrt_json, quantrt_text):
    quantrt_json("quantize", "model.onnx", "--calib-data", "calib.npz", "-o", "q.onnx")
    data = quantrt_json("compare", "model.onnx", "q.onnx", "--data", "valid.npz", "--layers")
    assert data["passed"] is True
    assert {"r"} <= {row["output"] for row in data["three_way"]["layers"]}
    words = ("compare", "model.onnx", "q.onnx", "--data", "valid.npz", "--min-sqnr", "90")
    assert quantrt_json(*words, code=1)["passed"] is False
    assert quantrt_text(*words, code=1).splitlines()[-1].startswith("FAILED")
    same = quantrt_text("compare", "model.onnx", "model.onnx", "--data", "valid.npz")
    assert same.splitlines()[-1].startswith("PASSED")


def test_inspect_a_model(folder: Path, quantrt_json, quantrt_text):
    assert quantrt_json("inspect", "model.onnx")["operators"]["Conv"] == 1
    assert "image float32 [n,3,16,16]" in quantrt_text("inspect", "model.onnx", "--layers")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param(("inspect", "xmodel.onnx"), 3, "xmodel.onnx", id="no model"),
        pytest.param(("inspect", "no.ranges"), 3, "no.ranges", id="no ranges"),
        pytest.param(("inspect", "no.qrt"), 3, "no.qrt", id="no engine"),
        pytest.param(("inspect", "text.onnx"), 3, "text.onnx", id="not a model"),
        pytest.param(("inspect", "text.ranges"), 3, "text.ranges", id="not ranges"),
        pytest.param(("inspect", "text.qrt"), 3, "text.qrt", id="not an engine"),
        pytest.param(("bench", "model.onnx", "text.qrt"), 3, "text.qrt", id="bench not an engine"),
        pytest.param(
            ("run", "model.onnx", "--inputs", "none.npz", "-o", "o.npz"), 2, "none.npz", id="no data"
        ),
        pytest.param(
            ("run", "model.onnx", "--inputs", "wrong.npz", "-o", "o.npz"), 3, "imagee", id="wrong name"
        ),
        pytest.param(
            ("run", "model.onnx", "--inputs", "shape.npz", "-o", "o.npz"), 3, "image", id="wrong shape"
        ),
        pytest.param(
            ("calibrate", "model.onnx", "--calib-data", "nan.npz", "-o", "m.ranges"),
            3,
            "NaN",
            id="NaN in data",
        ),
        pytest.param(
            (
                "quantize",
                "model.onnx",
                "--calib-data",
                "calib.npz",
                "--exclude",
                "/nothing/*",
                "-o",
                "q.onnx",
            ),
            2,
            "/nothing/*",
            id="pattern that matches nothing",
        ),
    ],
)
def test_what_cannot_be_used(words: tuple[str, ...], code: int, says: str, folder: Path, quantrt_json):
    for suffix in ("onnx", "ranges", "qrt"):
        Path(f"text.{suffix}").write_text("this is a text\n" * 100)
    with np.load("calib.npz") as arrays:
        image = arrays["image"]
    np.savez("wrong.npz", imagee=image, mask=image)
    np.savez("shape.npz", image=image[:, :, :, :, None])
    image[3, 0, 0, 0] = np.nan
    np.savez("nan.npz", image=image)
    error = quantrt_json(*words, code=code)["error"]
    assert says in f"{error['message']} {error['got']} {error['hint']}"
    assert not Path("o.npz").exists()
