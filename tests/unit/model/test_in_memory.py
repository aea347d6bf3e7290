# SPDX-License-Identifier: Apache-2.0
"""A model in memory is the model that its file would be, and is left as it is."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.errors import ModelError
from quantrt.model.file.read import read_proto
from quantrt.model.load import load_model
from tests.unit.model.check_pass import proto_of, run

WIDTH = 64  # of a weight that is larger than what stays in the protobuf


def unnamed() -> onnx.ModelProto:
    """A product whose node has no name, and a declared shape that is wrong: both are mended as it is read."""
    weight = np.random.default_rng(3).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    proto = proto_of("h = MatMul(x, w) y = Relu(h)", inputs=f"float[N,{WIDTH}] x", weights={"w": weight})
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [7, WIDTH]))
    return proto


def with_data_beside(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(unnamed(), path, save_as_external_data=True, location="model.data", size_threshold=0)
    return path


def in_memory(kind: str, path: Path) -> onnx.ModelProto | ir.Model:
    return onnx.load(path) if kind == "protobuf" else ir.load(path)


@pytest.mark.parametrize("kind", ["protobuf", "onnx_ir"])
def test_a_model_in_memory_is_its_file(kind: str, tmp_path: Path):
    path = with_data_beside(tmp_path)
    given = in_memory(kind, path)
    found, wanted = load_model(given), load_model(path)
    assert found.path is None
    assert found.called == "this model"
    assert (found.fingerprint, found.inputs, found.outputs) == (
        wanted.fingerprint,
        wanted.inputs,
        wanted.outputs,
    )
    assert (found.notes, found.changes) == (wanted.notes, wanted.changes)
    assert found.file_bytes > WIDTH * WIDTH * np.float32().nbytes
    x = {"x": np.ones((3, WIDTH), np.float32)}
    np.testing.assert_array_equal(run(found.graph, x)[0], run(wanted.graph, x)[0])


def test_it_is_left_as_it_is_and_may_change_afterwards():
    given = unnamed()
    before = given.SerializeToString()
    model = load_model(given)
    assert given.SerializeToString() == before
    weight = model.graph.graph.initializers["w"].const_value.numpy().copy()
    given.graph.initializer[0].raw_data = bytes(weight.nbytes)
    np.testing.assert_array_equal(model.graph.graph.initializers["w"].const_value.numpy(), weight)


def test_a_graph_is_left_as_it_is(tmp_path: Path):
    graph = ir.load(with_data_beside(tmp_path))
    load_model(graph)
    assert isinstance(graph.graph.initializers["w"].const_value, ir.ExternalTensor)
    assert not any(node.name for node in graph.graph)


def test_external_data_that_is_not_loaded_is_an_error_that_says_so(tmp_path: Path):
    with pytest.raises(
        ModelError, match=r"external data of 'w' is not loaded: it lies in 'model\.data'"
    ) as caught:
        load_model(onnx.load(with_data_beside(tmp_path), load_external_data=False))
    assert "onnx.load(path)" in (caught.value.hint or "")


def test_a_graph_whose_data_is_gone_is_an_error(tmp_path: Path):
    graph = ir.load(with_data_beside(tmp_path))
    (tmp_path / "model.data").unlink()
    with pytest.raises(ModelError, match=r"cannot take this onnx_ir\.Model") as caught:
        load_model(graph)
    assert "model.data" in (caught.value.got or "")


def test_what_protobuf_cannot_hold_is_told_to_be_saved():
    class Large:
        def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
            raise ValueError("Message ONNX.ModelProto exceeds maximum protobuf size of 2GB: 2200000000")

    with pytest.raises(ModelError, match="cannot take this model from memory") as caught:
        read_proto(Large())
    assert "save_as_external_data" in (caught.value.hint or "")


def test_what_is_no_model_inside_is_told():
    with pytest.raises(ModelError, match="cannot read the model as an ONNX model"):
        load_model(onnx.ModelProto())


def test_a_loaded_model_is_itself():
    model = load_model(unnamed())
    assert load_model(model) is model
