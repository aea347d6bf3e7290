# SPDX-License-Identifier: Apache-2.0
"""A file's bytes by what they are: together the file; float weights and why; what is in it twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quantrt.plan.plan import Plan
from quantrt.plan.serialize import load_plan, save_plan
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.report.explain.size import HEADER, SCALES, Size, describe_size
from tests.plans import LIBRARIES, make_plan
from tests.unit.report.quantized_plans import cuda_plan_of, int8_plan

CODES_BYTES = 8 * 27 + 2 * 8 * 72 + 16 * 72 + 5 * 16
"""Weights of the network's five products, a byte each."""


def size_of(plan: Plan, folder: Path) -> Size:
    save_plan(plan, folder / "m.qrt")
    loaded = load_plan(folder / "m.qrt")
    return describe_size(loaded, (folder / "m.qrt").stat().st_size, engine_layers(loaded))


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_parts_are_the_file(library: str, tmp_path: Path):
    size = size_of(int8_plan(library), tmp_path)
    parts = dict(size.parts)
    assert sum(parts.values()) == size.file_bytes == (tmp_path / "m.qrt").stat().st_size
    assert all(count > 0 for count in parts.values())
    assert 0.8 * CODES_BYTES < parts["int8 weights"] <= CODES_BYTES + 64, "compressed with the graph"
    assert 0 < parts[SCALES] < parts["graph"] and parts[HEADER] > 0
    assert size.float_layers == ()


def test_the_parts_of_an_engine_for_a_gpu_are_the_file(tmp_path: Path):
    pytest.importorskip("torch", reason="programs are made in torch")
    size = size_of(cuda_plan_of("H200"), tmp_path)
    parts = dict(size.parts)
    assert sum(parts.values()) == size.file_bytes
    assert parts["int8 weights"] == CODES_BYTES and parts[SCALES] == 4 * (8 + 8 + 8 + 16 + 5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_product_that_stayed_float_stands_with_its_bytes_and_why(library: str):
    plan = int8_plan(library)
    floats = make_plan(library)
    size = describe_size(floats, None, engine_layers(floats, shapes={"x": (1, 32)}))
    assert [(name, count) for name, count, _ in size.float_layers] == [(size.float_layers[0][0], 4 * 32 * 32)]
    assert size.float_bytes == 4096
    assert size.file_bytes == floats.model.size_bytes
    assert plan.precision == "int8"


def test_floats_inside_the_graph_of_onnx_runtime_are_compressed_with_it(tmp_path: Path):
    """Operands of elementwise operators are in its protobuf, most of it, and the text is what is left."""
    w = np.random.default_rng(3).standard_normal((4, 4096)).astype(np.float32)
    plan = make_plan("onnxruntime", "net (float[N,4096] x) => (float[4,4096] y) { y = Add(x, w) }", {"w": w})
    parts = dict(size_of(plan, tmp_path).parts)
    assert sum(parts.values()) == (tmp_path / "m.qrt").stat().st_size
    assert 0.8 * w.nbytes < parts["float32 weights"] < w.nbytes
    assert 0 < parts["graph"] < 1000


TABLE = "net (int64[B,S] i) => (float[B,S,64] y) { e = Gather(table, i) y = Add(e, e) }"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_table_that_stayed_float_stands_with_its_bytes(library: str):
    table = np.random.default_rng(2).standard_normal((1024, 64)).astype(np.float32)
    plan = make_plan(library, TABLE, {"table": table})
    size = describe_size(plan, None, engine_layers(plan, shapes={"i": (1, 4)}))
    assert [count for _, count, _ in size.float_layers] == [table.nbytes]
    assert size.float_bytes == table.nbytes
    small = make_plan(library, TABLE, {"table": table[:1023]})
    assert describe_size(small, None, engine_layers(small, shapes={"i": (1, 4)})).float_layers == ()


def test_equal_arrays_are_counted_once():
    w = np.random.default_rng(1).standard_normal((40, 40)).astype(np.float32)
    text = "two (float[N,40] x) => (float[N,40] y) { h = MatMul(x, w) y = MatMul(h, v) }"
    plan = make_plan("onnxruntime", text, {"w": w, "v": w.copy()})
    assert describe_size(plan, None, ()).duplicate_bytes == w.nbytes
    other = make_plan("onnxruntime", text, {"w": w, "v": w + 1})
    assert describe_size(other, None, ()).duplicate_bytes == 0


def test_the_float_model_is_told_where_it_is_known():
    plan = make_plan("onnxruntime")
    assert describe_size(plan, None, ()).model_bytes is None
    told = replace(plan, report={"model": {"file_bytes": 1234}})
    assert describe_size(told, None, ()).model_bytes == 1234
