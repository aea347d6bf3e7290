# SPDX-License-Identifier: Apache-2.0
"""Codes of engines against the reference in numpy: equal, or told where they are not."""

import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.calibrate.dataset import open_dataset
from quantrt.config import CompareConfig
from quantrt.errors import ModelError, UsageError
from quantrt.model.file.save import save_model
from quantrt.quantize.targets.cuda import CUDA
from quantrt.reference.exact_sums import conv_sums
from quantrt.reference.windows import Windows
from quantrt.report.codes.compare_codes import (
    RegionCodes,
    add_samples,
    code_regions,
    compare_codes,
    show_codes,
)
from quantrt.report.codes.find import CodeRegion
from quantrt.report.subject import open_subject
from tests.nets import net, quantized, resnet, samples

INPUTS = {"x": samples(4, 3, 16, 16)}
CONFIG = CompareConfig()


def compared(path, inputs=INPUTS, config=CONFIG):
    with open_subject(path) as subject:
        return compare_codes(subject, subject, open_dataset(inputs, subject.inputs), config)


def test_integer_kernels_of_onnx_runtime_make_the_codes_of_the_reference(ort_file, capsys):
    data = compared(ort_file)
    json.dumps(data)
    assert data["passed"]
    kinds = [row["op_type"] for row in data["regions"]]
    assert kinds.count("Conv") == 4 and "GlobalAveragePool" in kinds and "Add" in kinds
    assert sum(row["codes"] for row in data["regions"]) > 20_000
    assert all(row["largest"] <= 1 for row in data["regions"])
    show_codes(data, every=True)
    text = capsys.readouterr().out
    assert "made of floats alone" in text and text.splitlines()[-1].startswith("PASSED")


def test_one_wrong_code_of_a_weight_is_found_in_its_region(ort_file):
    """The graph that is checked says another weight than the engine runs with."""
    with open_subject(ort_file) as subject:
        dataset = open_dataset(INPUTS, subject.inputs)
        wrong = open_subject(ort_file)
        with closing(wrong):
            graph = ir.load(ort_file)
            name = next(key for key in graph.graph.initializers if key == "w1_quantized")
            weight = graph.graph.initializers[name].const_value.numpy().copy()
            weight[3, 2, 1, 1] = -weight[3, 2, 1, 1] or 64
            graph.graph.initializers[name].const_value = ir.tensor(weight, name=name)
            regions = [
                each
                for each in code_regions(graph, "onnxruntime", subject.tensors())
                if isinstance(each, CodeRegion)
            ]
            rows = [RegionCodes(region) for region in regions]
            names = [name for row in rows for name in (row.region.output, *row.region.codes.values())]
            with closing(subject.tap(list(dict.fromkeys(names)))) as engine:
                add_samples(rows, engine.run, dataset, CONFIG, opset=17, library="onnxruntime")
    bad = [row for row in rows if not row.is_equal]
    assert [row.region.op_type for row in bad] == ["Conv"]
    assert any(
        node.inputs[1].name == "w1_dequantize_output"
        for node in bad[0].region.nodes
        if node.op_type == "Conv"
    )


def test_a_program_for_gpus_makes_the_codes_of_the_reference():
    """The steps' own reference, which the kernels are held against, on a CPU."""
    pytest.importorskip("torch")
    from tests.program_codes import compare_program

    codes = quantized(resnet(), CUDA, INPUTS)
    rows = compare_program(codes.model, codes, INPUTS)
    assert len(rows) >= 4
    assert sum(row.codes for row in rows) > 10_000
    assert [row.region.name for row in rows if not row.is_equal] == []


def test_onnx_runtime_rounds_biases_to_the_grid_of_sums(tmp_path):
    """Biases in floats, as PyTorch exports them, half a step of the sums away from that grid."""
    rng = np.random.default_rng(4)
    arrays = {
        "s": np.asarray(0.02, np.float32),
        "z": np.asarray(100, np.uint8),
        "w": rng.integers(-2, 3, (8, 3, 3, 3)).astype(np.int8),
        "ws": np.full(8, 0.01, np.float32),
        "wz": np.zeros(8, np.int8),
        "b": ((np.arange(8) + 0.45) * 0.0002).astype(np.float32),
        "s2": np.asarray(0.0011 * np.sqrt(2), np.float32),  # no sum of whole numbers falls between two codes
    }
    text = """net (float[N,3,16,16] x) => (float[N,8,14,14] y) {
      q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) dw = DequantizeLinear<axis=0>(w, ws, wz)
      c = Conv(d, dw, b) q2 = QuantizeLinear(c, s2, z) y = DequantizeLinear(q2, s2, z)
    }"""
    path = tmp_path / "bias.onnx"
    save_model(net(text, arrays).graph, path)
    data = compared(path)
    assert data["passed"]
    (row,) = data["regions"]
    assert row["rounded_bias"] > 0
    assert row["differ"] == row["rounded_bias"] + row["at_midpoint"]


def test_a_float_model_has_no_codes(tmp_path):
    path = tmp_path / "float.onnx"
    save_model(resnet().graph, path)
    with pytest.raises(ModelError, match="no region that makes codes"):
        compared(path)


def test_openvino_keeps_its_codes(tmp_path, ort_file):
    class Engine:
        name = "model.qrt"
        model = replace(open_subject(ort_file).model, library="openvino")

    with open_subject(ort_file) as subject, pytest.raises(UsageError, match="inside its kernels") as caught:
        compare_codes(subject, Engine(), open_dataset(INPUTS, subject.inputs), CONFIG)
    assert "--layers" in (caught.value.hint or "")


@pytest.mark.parametrize("group", [1, 2])
def test_sums_are_those_of_a_loop(group: int, rng):
    x = rng.integers(-255, 256, (2, 4, 6, 5)).astype(np.float64)
    w = rng.integers(-127, 128, (6, 4 // group, 3, 2)).astype(np.float64)
    got = conv_sums(x, w, Windows((2, 1), (1, 2), (1, 0, 1, 2)), group=group)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 2)])
    assert got.shape == (2, 6, 3, 5)
    for n, o, i, j in np.ndindex(got.shape):
        part = 4 // group
        start = o // (6 // group) * part
        window = padded[n, start : start + part, 2 * i : 2 * i + 3, j : j + 3 : 2]
        assert got[n, o, i, j] == (window * w[o]).sum()
