# SPDX-License-Identifier: Apache-2.0
"""Structure and weights have fingerprints of their own, which storage and provenance do not touch."""

import hashlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.model import fingerprint as module
from quantrt.model.fingerprint import fingerprint
from quantrt.model.load import load_model
from tests.unit.model.check_pass import proto_of

WEIGHT = np.arange(6000, dtype=np.float32).reshape(2, 3000)


@pytest.fixture
def proto():
    return proto_of(
        "[m] a = MatMul(x, w) [c] k = Constant<value = float[2] {1, 2}>() [t] y = Transpose<perm=[1,0]>(a)",
        inputs="float[3,2] x",
        weights={"w": WEIGHT},
    )


def of(proto):
    return fingerprint(ir.from_proto(proto))


def changed(proto, edit):
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    edit(other)
    return of(other)


def set_weight(index):
    def edit(proto):
        array = WEIGHT.copy()
        array.reshape(-1)[index] += 1
        proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(array, "w"))

    return edit


def rename_weight(proto):
    proto.graph.initializer[0].name = proto.graph.node[0].input[1] = "v"


def rename_output(proto):
    proto.graph.output[0].name = proto.graph.node[2].output[0] = "z"


def set_constant(proto):
    proto.graph.node[1].attribute[0].t.float_data[0] = 5


WEIGHT_EDITS = {"the first": set_weight(0), "the last": set_weight(-1), "in an attribute": set_constant}
GRAPH_EDITS = {
    "an attribute": lambda proto: proto.graph.node[2].attribute[0].ints.reverse(),
    "an operator": lambda proto: setattr(proto.graph.node[0], "op_type", "Gemm"),
    "an input's shape": lambda proto: setattr(
        proto.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "N"
    ),
    "an input's type": lambda proto: setattr(proto.graph.input[0].type.tensor_type, "elem_type", 10),
    "the opset": lambda proto: setattr(proto.opset_import[0], "version", 18),
    "a weight's name": rename_weight,
    "an output's name": rename_output,
    "a weight's shape": lambda proto: proto.graph.initializer[0].dims.__setitem__(slice(None), [3000, 2]),
}
UNIMPORTANT_EDITS = {
    "producer": lambda proto: setattr(proto, "producer_name", "somebody"),
    "documentation": lambda proto: setattr(proto.graph.node[0], "doc_string", "words"),
    "node names": lambda proto: setattr(proto.graph.node[0], "name", "other"),
    "metadata": lambda proto: proto.metadata_props.add(key="author", value="somebody"),
    "inferred shapes": lambda proto: proto.graph.value_info.extend(
        onnx.shape_inference.infer_shapes(proto).graph.value_info
    ),
    "typed data": lambda proto: proto.graph.initializer[0].CopyFrom(
        onnx.helper.make_tensor("w", 1, WEIGHT.shape, WEIGHT.reshape(-1).tolist())
    ),
    "IR version": lambda proto: setattr(proto, "ir_version", 10),
}


@pytest.mark.parametrize("case", WEIGHT_EDITS)
def test_another_weight(case, proto):
    other = changed(proto, WEIGHT_EDITS[case])
    assert other.graph == of(proto).graph
    assert other.weights != of(proto).weights


@pytest.mark.parametrize("case", GRAPH_EDITS)
def test_another_structure(case, proto):
    other = changed(proto, GRAPH_EDITS[case])
    assert other.graph != of(proto).graph
    assert other.weights == of(proto).weights


@pytest.mark.parametrize("case", UNIMPORTANT_EDITS)
def test_what_does_not_matter(case, proto):
    assert changed(proto, UNIMPORTANT_EDITS[case]) == of(proto)


def test_where_the_weights_are_does_not_matter(proto, tmp_path):
    want = of(proto)
    onnx.save(proto, tmp_path / "inside.onnx")
    onnx.save(proto, tmp_path / "outside.onnx", save_as_external_data=True, location="data", size_threshold=0)
    inside, outside = (load_model(tmp_path / f"{name}.onnx").fingerprint for name in ("inside", "outside"))
    assert inside == outside == want


def test_it_is_this_one(proto):
    """A hash that moved would make every stored calibration stale."""
    found = of(proto)
    constant = np.array([1, 2], np.float32)
    assert found.weights == hashlib.sha256(WEIGHT.tobytes() + constant.tobytes()).hexdigest()
    assert found.graph == "f9b64b8967a128dc260422536f86d57ab6fe7e295e63c0467beb2b8134658653"


def test_of_large_weights_it_is_the_hash_of_their_hashes(proto, monkeypatch):
    small, constant = of(proto), np.array([1, 2], np.float32)
    monkeypatch.setattr(module, "LARGE_BYTES", WEIGHT.nbytes + constant.nbytes)
    digests = [hashlib.sha256(array.tobytes()).digest() for array in (WEIGHT, constant)]
    assert of(proto).weights == hashlib.sha256(b"".join(digests)).hexdigest()
    assert of(proto).graph == small.graph
    monkeypatch.setattr(module, "LARGE_BYTES", WEIGHT.nbytes + constant.nbytes + 1)
    assert of(proto) == small
