# SPDX-License-Identifier: Apache-2.0
"""Every file that cannot be used gets an error that says what it is and what was expected."""

import io
import zipfile

import numpy as np
import onnx
import pytest

from quantrt.model.load import load_model
from tests.unit.model.check_pass import error_of, proto_of, saved

WEIGHT = np.arange(2048, dtype=np.float32).reshape(2, 1024)


def good():
    return proto_of("y = MatMul(x, w)", inputs="float[3,2] x", weights={"w": WEIGHT})


def test_no_such_file_names_a_near_one(tmp_path):
    saved(good(), tmp_path)
    error = error_of(tmp_path / "models.onnx")
    assert "no such file" in error.message
    assert "model.onnx" in error.hint


def test_no_such_file_and_none_near_is_nothing_to_inspect(tmp_path):
    assert "a path that exists" in error_of(tmp_path / "model.onnx").hint


def test_a_folder_names_the_model_inside(tmp_path):
    saved(good(), tmp_path)
    error = error_of(tmp_path)
    assert (error.got, error.expected) == ("a folder", "an .onnx file")
    assert "model.onnx" in error.hint


def test_an_empty_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.touch()
    assert error_of(path).got == "an empty file"


def zip_bytes():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", b"weights")
    return buffer.getvalue()


FOREIGN = {
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(64), "a PNG image", None),
    "openvino": (b'<?xml version="1.0"?><net name="x"/>', "an XML file", "the ONNX file that it was made of"),
    "zip": (zip_bytes(), "a zip archive", "torch.onnx.export"),
    "git lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "a Git LFS pointer",
        "git lfs pull",
    ),
    "web page": (b"<!doctype html><html></html>", "a web page", None),
    "text": (b"This is a text, not a model.\n" * 20, "not a protobuf", None),
    "noise": (bytes(np.random.default_rng(3).integers(0, 256, 4000, np.uint8)), "protobuf", None),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file(kind, tmp_path):
    content, got, hint = FOREIGN[kind]
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    error = error_of(path)
    assert "ONNX model" in error.message
    assert got in error.got
    assert error.expected == "an ONNX protobuf"
    assert (error.hint is None) if hint is None else (hint in error.hint)


def test_another_protobuf_message(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.OperatorSetIdProto(domain="here").SerializeToString())
    assert "graph" in error_of(path).got


@pytest.mark.parametrize("kept_ratio", [0.1, 0.5, 0.99])
def test_a_truncated_file(kept_ratio, tmp_path):
    content = good().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(content[: int(len(content) * kept_ratio)])
    error = error_of(path)
    assert "truncated" in error.got
    assert "bytes left" in error.got


@pytest.mark.parametrize("opset", [6, 26, 99])
def test_an_opset_that_is_not_supported(opset, tmp_path):
    proto = good()
    proto.opset_import[0].version = opset
    error = error_of(saved(proto, tmp_path))
    assert "operator set" in error.message
    assert (error.got, error.expected) == (f"opset {opset}", "7 to 25")
    assert "convert_version" in error.hint


def test_no_opset_at_all(tmp_path):
    proto = good()
    del proto.opset_import[:]
    assert "no import" in error_of(saved(proto, tmp_path)).got


@pytest.mark.parametrize("version", [0, 2, 1000])
def test_an_ir_version_that_is_not_supported(version, tmp_path):
    proto = good()
    proto.ir_version = version
    error = error_of(saved(proto, tmp_path))
    assert error.got == f"IR version {version}"
    assert error.expected.startswith("3 to ")


GRAPHS = {
    "no outputs": ("y = Relu(x)", lambda graph: graph.ClearField("output"), "a graph without outputs"),
    "an undefined value": ("y = Add(x, nowhere)", lambda graph: None, "'nowhere'"),
    "an undefined output": ("z = Relu(x)", lambda graph: None, "'y'"),
    "one output twice": ("y = Relu(x)", lambda graph: graph.output.append(graph.output[0]), "more than once"),
    "two nodes, one name": (
        "y = Relu(x)",
        lambda graph: graph.node.append(onnx.helper.make_node("Neg", ["x"], ["y"])),
        "one name: 'y'",
    ),
    "two initializers, one name": (
        "y = Add(x, w)",
        lambda graph: graph.initializer.append(graph.initializer[0]),
        "one name: 'w'",
    ),
    "two inputs, one name": (
        "y = Relu(x)",
        lambda graph: graph.input.append(graph.input[0]),
        "one name: 'x'",
    ),
    "an input without name": ("y = Relu(x)", lambda graph: graph.input.add(), "no name"),
    "a cycle": ("[one] a = Add(x, b) [two] b = Relu(a) y = Neg(b)", lambda graph: None, "'one' (Add)"),
    "a node that feeds itself": ("[self] a = Add(x, a) y = Neg(a)", lambda graph: None, "'self' (Add)"),
    "a sparse initializer": (
        "y = Relu(x)",
        lambda graph: graph.sparse_initializer.add(values=onnx.TensorProto(name="sparse", data_type=1)),
        "sparse",
    ),
    "an undefined value in a branch": (
        "y = If (c) <then_branch = p () => (float[...] a) { a = Relu(lost) },"
        " else_branch = q () => (float[...] b) { b = Neg(x) }>",
        lambda graph: None,
        "'lost'",
    ),
    "an attribute of the wrong type": (
        "[turn] y = Transpose<perm=1>(x)",
        lambda graph: None,
        "attribute 'perm' of node 'turn' (Transpose) has the wrong type\n  got int, expected ints",
    ),
    "a node without outputs": (
        "[idle] z = Neg(x) y = Relu(x)",
        lambda graph: graph.node[0].ClearField("output"),
        "node 'idle' (Neg) has no output",
    ),
    "a name that is no text": (
        "[name] y = Relu(x)",
        lambda graph: graph.node[0].ParseFromString(
            graph.node[0].SerializeToString().replace(b"name", b"na\xffe")
        ),
        "name is not UTF-8 text",
    ),
    "a branch that hands out what is outside it": (
        "h = Relu(x) y = If (c) <then_branch = p () => (float[...] h) { a = Relu(x) },"
        " else_branch = q () => (float[...] b) { b = Neg(x) }>",
        lambda graph: None,
        "nothing defines the graph output 'h'",
    ),
    "a cycle through a branch": (
        "[outer] y = If (c) <then_branch = p () => (float[...] a) { a = Relu(z) },"
        " else_branch = q () => (float[...] b) { b = Neg(x) }> [inner] z = Neg(y)",
        lambda graph: None,
        "'inner' (Neg)",
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_a_graph_that_cannot_be(case, tmp_path):
    body, damage, text = GRAPHS[case]
    proto = proto_of(body, inputs="float[3,2] x", weights={"w": WEIGHT[:, 0], "c": np.array(True)})
    damage(proto.graph)
    assert text in str(error_of(saved(proto, tmp_path)))


def test_nodes_out_of_order_are_sorted(tmp_path):
    proto = proto_of("[last] y = Neg(a) [first] a = Relu(x)", inputs="float[3,2] x")
    assert [node.name for node in load_model(saved(proto, tmp_path)).graph.graph] == ["first", "last"]


def test_an_input_that_is_no_tensor(tmp_path):
    proto = proto_of("y = SequenceAt(x, i)", weights={"i": np.int64(0)})
    sequence = onnx.helper.make_tensor_sequence_value_info("x", 1, [2])
    proto.graph.input[0].CopyFrom(sequence)
    error = error_of(saved(proto, tmp_path))
    assert "'x'" in error.message
    assert error.expected == "a dense tensor"


def tensor(**fields):
    return onnx.TensorProto(name="w", **fields)


FLOAT, INT8, INT4 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT8, onnx.TensorProto.INT4
TENSORS = {
    "too little raw data": (tensor(data_type=FLOAT, dims=[2, 3], raw_data=bytes(20)), "20 bytes", "24 bytes"),
    "too much raw data": (tensor(data_type=FLOAT, dims=[2], raw_data=bytes(12)), "12 bytes", "8 bytes"),
    "too few values": (tensor(data_type=FLOAT, dims=[4], float_data=[1, 2]), "2 values", "4 values"),
    "values in the wrong field": (
        tensor(data_type=INT8, dims=[2], float_data=[1, 2]),
        "0 values",
        "2 values",
    ),
    "too few nibbles": (tensor(data_type=INT4, dims=[5], raw_data=bytes(2)), "2 bytes", "3 bytes"),
    "no data": (tensor(data_type=FLOAT, dims=[2]), "0 values", "2 values"),
    "an absurd shape": (
        tensor(data_type=FLOAT, dims=[2**40, 2**40], raw_data=bytes(4)),
        "4 bytes",
        f"{2**82} bytes",
    ),
    "a negative size": (tensor(data_type=FLOAT, dims=[-1], raw_data=bytes(4)), "shape [-1]", None),
    "no type": (tensor(dims=[1], raw_data=bytes(4)), "type 0", None),
    "an unknown type": (tensor(data_type=999, dims=[1], raw_data=bytes(4)), "type 999", None),
}


@pytest.mark.parametrize("case", TENSORS)
@pytest.mark.parametrize("where", ["initializer", "attribute"])
def test_a_tensor_that_disagrees_with_itself(case, where, tmp_path):
    damaged, got, expected = TENSORS[case]
    proto = proto_of(
        "y = Relu(x)" if where == "initializer" else "y = Relu(x) w = Constant<value=float {1}>()"
    )
    if where == "initializer":
        proto.graph.initializer.append(damaged)
    else:
        proto.graph.node[1].attribute[0].t.CopyFrom(damaged)
    error = error_of(saved(proto, tmp_path))
    assert where in error.message
    assert error.got == got
    assert expected is None or error.expected.startswith(expected)


def test_a_large_weight_that_disagrees_with_its_shape(tmp_path):
    proto = good()
    proto.graph.initializer[0].dims[0] = 3
    error = error_of(saved(proto, tmp_path))
    assert (error.got, error.expected) == ("8192 bytes", "12288 bytes for float [3, 1024]")


def test_foreign_operators_are_noted(tmp_path):
    proto = proto_of("h = Relu(x) y = Neg(h)")
    proto.opset_import.append(onnx.helper.make_opsetid("here", 1))
    proto.graph.node[0].domain = "here"
    model = load_model(saved(proto, tmp_path))
    assert model.notes == ("operators from outside the ONNX standard: here.Relu (1)",)
    assert [node.domain for node in model.graph.graph] == ["here", ""]
