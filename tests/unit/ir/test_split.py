# SPDX-License-Identifier: Apache-2.0
"""A protobuf and its weights apart: nothing copied, nothing lost."""

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.ir.session import float_session
from quantrt.ir.split import split_weights
from tests.unit.model.check_pass import model_of


@pytest.fixture
def model():
    model = model_of("a = MatMul(x, w) y = Add(a, b)", inputs="float[2,40] x")
    for name, array in {"w": np.ones((40, 30), np.float32), "b": np.ones(30, np.float32)}.items():
        value = ir.Value(name=name, const_value=ir.Tensor(array, name=name))
        for node in model.graph:
            for index, old in enumerate(node.inputs):
                if old.name == name:
                    node.replace_input_with(index, value)
        model.graph.register_initializer(value)
    return model


def test_large_weights_are_handed_over_uncopied(model):
    before = ir.to_proto(model).SerializeToString()
    protobuf, weights = split_weights(model)
    assert list(weights) == ["w"]
    assert weights["w"] is model.graph.initializers["w"].const_value.numpy()
    proto = onnx.ModelProto.FromString(protobuf)
    external = {
        tensor.name for tensor in proto.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL
    }
    assert external == {"w"}
    places = {entry.key: entry.value for entry in proto.graph.initializer[0].external_data}
    assert places == {"location": "weights", "offset": "0", "length": "4800"}
    assert len(protobuf) < 1000
    assert ir.to_proto(model).SerializeToString() == before


@pytest.mark.parametrize(("min_bytes", "names"), [(0, ["w", "b"]), (121, ["w"]), (10**6, [])])
def test_the_bound(min_bytes, names, model):
    assert list(split_weights(model, min_bytes)[1]) == names


def test_text_and_nibbles_stay_inside(model):
    nibbles = ir.Tensor(np.ones((100, 100), ml_dtypes.int4), name="n")
    words = ir.StringTensor(np.array([b"word"] * 2000, dtype=object), shape=ir.Shape([2000]), name="s")
    for tensor in (nibbles, words):
        model.graph.register_initializer(ir.Value(name=tensor.name, const_value=tensor))
    protobuf, weights = split_weights(model)
    assert list(weights) == ["w"]
    inside = {tensor.name: tensor for tensor in onnx.ModelProto.FromString(protobuf).graph.initializer}
    assert len(inside["s"].string_data) == 2000
    assert len(inside["n"].raw_data) == 5000


def test_sizes_stay_where_shape_inference_reads_them():
    parts = ", ".join(f"y{n}" for n in range(200))
    model = model_of(
        f"{parts} = Split <axis = 1> (x, sizes)", inputs="float[2,400] x", outputs="float[2,2] y0"
    )
    sizes = ir.Tensor(np.full(200, 2, np.int64), name="sizes")
    value = ir.Value(name="sizes", const_value=sizes)
    next(iter(model.graph)).replace_input_with(1, value)
    model.graph.register_initializer(value)
    (y,) = float_session(model).run(None, {"x": np.ones((2, 400), np.float32)})
    assert y.shape == (2, 2)
