# SPDX-License-Identifier: Apache-2.0
"""Shapes that a file declares wrongly are not used; those that are right, or more, are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from quantrt.model.load import load_model
from quantrt.model.model import Model
from tests.nets import run_ort

KEEPS_SHAPE = """net (float[N,6] x) => (float[M,4] y) {
  a = MatMul(x, w0) s = Shape(a) b = Relu(a) r = Reshape(b, s) y = MatMul(r, w1)
}"""
"""What is made of the shape of `a` is a constant where that is known."""


def loaded(text: str, declared: Mapping[str, Sequence[int | str]], folder: Path) -> Model:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    rng = np.random.default_rng(0)
    for name, shape in {"w0": (6, 5), "w1": (5, 4)}.items():
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for name, dims in declared.items():
        proto.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, dims))
    onnx.save(proto, folder / "model.onnx")
    return load_model(folder / "model.onnx")


def shape_of(model: Model, name: str) -> list[object]:
    (value,) = (value for node in model.graph.graph for value in node.outputs if value.name == name)
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape.dims]


@pytest.mark.parametrize("declared", [{"a": [1, 5]}, {"a": [1, 5], "b": [1, 5]}, {"b": [5]}, {"a": ["N", 7]}])
def test_a_contradicted_shape_is_not_used(declared, tmp_path):
    model = loaded(KEEPS_SHAPE, declared, tmp_path)
    (note,) = model.notes
    assert "'a' is declared as" in note or "'b' is declared as" in note
    x = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)
    w0, w1 = (model.graph.graph.initializers[name].const_value.numpy() for name in ("w0", "w1"))
    (got,) = run_ort(model.graph, {"x": x})
    np.testing.assert_allclose(got, np.maximum(x @ w0, 0) @ w1, rtol=1e-5, atol=1e-6)


def test_an_output_is_declared_anew(tmp_path):
    text = "net (float[N,6] x) => (float[1,4] y) { a = MatMul(x, w0) y = MatMul(a, w1) }"
    model = loaded(text, {}, tmp_path)
    assert "'y' is declared as [1,4], and computed as [N,4]" in model.notes[0]
    assert model.outputs[0].shape == ("N", 4)


def test_a_weight_that_is_declared_too_keeps_its_shape(tmp_path):
    text = "net (float[N,6] x) => (float[M,4] y) { a = MatMul(x, w0) y = MatMul(a, w1) }"
    model = loaded(text, {"a": [7, 5], "w0": [6, 5], "w1": [5, 4]}, tmp_path)
    assert "'a' is declared as [7,5]" in model.notes[0]
    assert shape_of(model, "a") == ["N", 5]


def test_what_inference_does_not_find_stays_declared(tmp_path):
    text = """net (float[N,6] x, int64[2] s) => (float[M,4] y) {
      a = MatMul(x, w0) r = Reshape(a, s) y = MatMul(r, w1)
    }"""
    model = loaded(text, {"a": ["N", 5], "r": ["N", 5]}, tmp_path)
    assert model.notes == () and shape_of(model, "r") == ["N", 5]


def test_a_negative_size_is_free(tmp_path):
    text = "net (float[N,6] x) => (float[N,4] y) { a = MatMul(x, w0) y = MatMul(a, w1) }"
    model = loaded(text, {"a": [-1, 5]}, tmp_path)
    proto = onnx.load(tmp_path / "model.onnx")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    onnx.save(proto, tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx")
    assert model.notes == () and model.inputs[0].shape == (None, 6)
