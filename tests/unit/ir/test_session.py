# SPDX-License-Identifier: Apache-2.0
"""Sessions of a graph: any tensor can be tapped, weights are shared, refusals are typed."""

import gc

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from quantrt.errors import ModelError, UsageError
from quantrt.ir.session import float_session
from quantrt.ir.shapes import infer_shapes
from tests.unit.model.check_pass import model_of


@pytest.fixture
def model(rng):
    weights = {name: rng.standard_normal((40, 40)).astype(np.float32) for name in ("w", "v")}
    return model_of("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)", inputs="float[N,40] x", weights=weights)


def expected(model, x):
    w, v = (model.graph.initializers[name].const_value.numpy() for name in ("w", "v"))
    return x @ w, np.maximum(x @ w, 0), np.maximum(x @ w, 0) @ v


@pytest.mark.parametrize("optimize", [True, False])
def test_outputs_and_taps(optimize, model, rng):
    session = float_session(model, extra_outputs=["b", "a", "y", "b", "x"], optimize=optimize, threads=1)
    assert [output.name for output in session.get_outputs()] == ["y", "b", "a", "x"]
    x = rng.standard_normal((3, 40)).astype(np.float32)
    a, b, y = expected(model, x)
    for got, want in zip(session.run(None, {"x": x}), (y, b, a, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert [value.name for value in model.graph.outputs] == ["y"]


@pytest.mark.parametrize("optimize", [True, False])
def test_the_session_outlives_the_graph(optimize, model, rng):
    x = rng.standard_normal((3, 40)).astype(np.float32)
    want = expected(model, x)[2]
    session = float_session(model, optimize=optimize, threads=1)
    del model
    gc.collect()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)


def test_taps_without_a_known_type(rng):
    model = model_of("a = Relu(x) b = Shape(a) c = Cast<to=1>(b) y = Neg(c)", inputs="float[...] x")
    session = float_session(model, extra_outputs=["b"])
    assert session.run(["b"], {"x": np.ones((2, 3), np.float32)})[0].tolist() == [2, 3]
    infer_shapes(model)
    float_session(model, extra_outputs=["b"])


def test_a_tap_that_does_not_exist_names_the_nearest():
    model = model_of("conv_out = Relu(x) y = Neg(conv_out)")
    with pytest.raises(UsageError, match="no tensor 'conv_ouy'") as caught:
        float_session(model, extra_outputs=["conv_ouy"])
    assert caught.value.hint == "'conv_out'"


def test_a_refused_model():
    model = model_of("y = Relu(x, x)")
    with pytest.raises(ModelError, match="ONNX Runtime cannot load") as caught:
        float_session(model)
    assert "Relu" in caught.value.got


def test_a_model_that_cannot_run_at_all_is_loaded_once(monkeypatch):
    levels = []

    def opened(protobuf, options, **rest):
        levels.append(options.graph_optimization_level)
        return open_session(protobuf, options, **rest)

    open_session = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
    with pytest.raises(ModelError):
        float_session(model_of("y = Relu(x, x)"))
    assert levels == [onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.bool_, ml_dtypes.bfloat16], ids=str)
def test_weights_of_other_types(dtype, rng):
    array = rng.integers(0, 2, (40, 40)).astype(dtype)
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[N] i) => (float[N,40] y)'
        " { r = Gather(w, i) y = Cast<to=1>(r) }"
    )
    model = ir.from_proto(proto)
    # A value that nothing defines yet: the weight.
    weight = model.graph[0].inputs[0]
    weight.const_value = ir.Tensor(array, name="w")
    model.graph.register_initializer(weight)
    for optimize in (True, False):
        got = float_session(model, optimize=optimize).run(None, {"i": np.array([3, 5])})[0]
        np.testing.assert_array_equal(got, array[[3, 5]].astype(np.float32))


def test_a_value_that_onnxruntime_fuses_away_can_be_tapped(rng):
    """A sum of two convolutions with biases becomes one node there, and its refusal names no cause."""
    body = """a = Conv<group=32,pads=[3,3,3,3],strides=[2,2]>(x, w, c)
    b = Conv<group=32,pads=[1,1,1,1],strides=[2,2]>(x, v, d) y = Add(a, b)"""
    shapes = {"w": (64, 1, 7, 7), "v": (64, 1, 3, 3), "c": (64,), "d": (64,)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    model = model_of(body, inputs="float[N,32,8,8] x", outputs="float[N,64,4,4] y", weights=weights)
    x = rng.standard_normal((2, 32, 8, 8)).astype(np.float32)
    y, a, b = float_session(model, extra_outputs=["a", "b"], threads=1).run(None, {"x": x})
    np.testing.assert_allclose(a + b, y, rtol=1e-5, atol=1e-4)
    y, a = float_session(model, extra_outputs=["a"], threads=1).run(None, {"x": x})
    np.testing.assert_allclose(a + b, y, rtol=1e-5, atol=1e-4)
