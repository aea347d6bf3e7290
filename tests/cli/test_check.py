# SPDX-License-Identifier: Apache-2.0
"""`quantrt check`: trouble, and GPUs that are not here, from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quantrt.cli.main import main
from quantrt.gpu import GPUS

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'torch':
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Block())
from quantrt.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_one_gpu_region_by_region(folder: Path, quantrt_json, quantrt_text):
    data = quantrt_json("check", "model.onnx", "--device", "t4")
    [device] = data["devices"]
    assert device["gpu"]["name"] == "T4"
    assert data["shapes"] == {"image": [1, 3, 16, 16]}
    assert device["summary"]["int8"] >= 1
    assert all(row["falls_back"] == bool(row["reason"]) for row in device["regions"])
    out = quantrt_text("check", "model.onnx", "--device", "t4")
    assert "compute capability 7.5" in out


def test_all_gpus_a_line_each(folder: Path, quantrt_json, quantrt_text):
    data = quantrt_json("check", "model.onnx", "--device", "all")
    assert [device["gpu"]["name"] for device in data["devices"]] == [gpu.name for gpu in GPUS]
    out = quantrt_text("check", "model.onnx", "--device", "all")
    for gpu in GPUS:
        assert any(line.startswith(gpu.name) for line in out.splitlines())


def test_precision(folder: Path, quantrt_json):
    data = quantrt_json("check", "model.onnx", "--device", "h200", "--precision", "fp32")
    assert {row["precision"] for row in data["devices"][0]["regions"]} <= {"", "fp32"}


def test_fp8_has_kernels_from_ada_on(folder: Path, quantrt_json, quantrt_text):
    for gpu, count in (("h200", 1), ("a100", 0)):
        data = quantrt_json("check", "model.onnx", "--device", gpu, "--precision", "fp8")
        summary = data["devices"][0]["summary"]
        assert summary["fp8"] >= 1
        assert bool(summary["fp8_with_kernel"]) == bool(count)
    text = quantrt_text("check", "model.onnx", "--device", "a100", "--precision", "fp8")
    assert "fp8 regions" in text
    assert "89 is the least" in text


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param(("model.onnx", "--device", "t5"), 2, "no facts of a GPU named 't5'", id="gpu"),
        pytest.param(
            ("model.onnx", "--device", "t4", "--shape", "img=1x3x16x16"), 2, "--shape image=...", id="input"
        ),
        pytest.param(("model.onnx", "--precision", "int4"), 2, "int4", id="precision"),
        pytest.param(("none.onnx",), 3, "none.onnx", id="no model"),
    ],
)
def test_mistakes(words: tuple[str, ...], code: int, says: str, folder: Path, capsys):
    assert main(["check", *words]) == code
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


def test_free_sizes_are_the_usual_ones_and_told(folder: Path, capsys):
    import onnx

    model = onnx.load("model.onnx")
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    onnx.save(model, "free.onnx")
    assert main(["check", "free.onnx", "--device", "t4"]) == 0
    assert capsys.readouterr().out.startswith("free.onnx in int8: image 1x3x224x224\n")
    assert main(["check", "free.onnx", "--device", "t4", "--shape", "image=2x3x16x16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shapes"] == {"image": [2, 3, 16, 16]}


def test_without_torch_the_package_is_named(folder: Path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "check", "model.onnx", "--device", "t4"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "the package 'torch' is not installed" in done.stderr
    assert done.stderr.endswith("try pip install 'quantrt[cuda]'\n")


def test_no_trouble_on_a_cpu(folder: Path, quantrt_json, quantrt_text):
    data = quantrt_json("check", "model.onnx", "--device", "cpu", "--calib-data", "calib.npz")
    assert data["devices"] == []
    assert data["trouble"]["findings"] == []
    assert data["trouble"]["target"] == "openvino"
    out = quantrt_text("check", "model.onnx", "--device", "cpu")
    assert "no trouble predicted from the graph alone" in out


def test_trouble_is_told_with_its_layer_and_what_helps(folder: Path, quantrt_json, quantrt_text):
    import onnx

    model = onnx.load("model.onnx")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, factor in (("w1", 1000.0), ("b1", 1000.0), ("w2", 1e-3)):
        array = onnx.numpy_helper.to_array(tensors[name]).copy()
        array[(slice(None), 3) if name == "w2" else 3] *= factor
        tensors[name].CopyFrom(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, "wide.onnx")
    words = ("check", "wide.onnx", "--device", "cpu", "--calib-data", "calib.npz", "--samples", "8")
    [finding] = quantrt_json(*words)["trouble"]["findings"]
    assert (finding["kind"], finding["level"]) == ("outlier channels", "trouble")
    assert "channels 3 of 8" in finding["figure"]
    out = quantrt_text(*words)
    assert "1 trouble predicted from 8 samples at most" in out
    assert f"'{finding['nodes'][0]}'" in out
    assert not quantrt_json(*words, "--exclude", finding["nodes"][0])["trouble"]["findings"]


def test_ranges_serve_as_well(folder: Path, quantrt_json):
    quantrt_json("calibrate", "model.onnx", "--calib-data", "calib.npz", "-o", "model.ranges")
    words = ("check", "model.onnx", "--device", "cpu", "--ranges", "model.ranges")
    data = quantrt_json(*words)["trouble"]
    assert data["seen"] == "ranges alone"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--samples", "0"), "cannot look at so few samples"),
        (("--precision", "fp8"), "no library here computes in fp8 on a CPU"),
        (("--precision", "fp16"), "--device all for kernels of GPUs"),
        (("--shape", "image=1x3x16x16"), "shapes decide nothing on a CPU"),
        (("--exclude", "nothing"), "'nothing'"),
    ],
)
def test_mistakes_on_a_cpu(words: tuple[str, ...], says: str, folder: Path, capsys):
    assert main(["check", "model.onnx", *words]) == 2
    assert says in capsys.readouterr().err


def test_without_a_device_it_is_the_cpu_and_needs_no_torch(folder: Path, quantrt_json):
    words = ("check", "model.onnx")
    assert quantrt_json(*words) == quantrt_json(*words, "--device", "cpu")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
