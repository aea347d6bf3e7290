# SPDX-License-Identifier: Apache-2.0
"""A loaded model: its interface, its names, its history, at every opset."""

import mmap

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.errors import UsageError
from quantrt.ir.session import float_session
from quantrt.ir.sources import sources_of
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.model.load import load_model, make_model
from tests.unit.model.check_pass import model_of, op_types, proto_of, run, saved


def network(rng, opset):
    """A small network in the words of `opset`: batch norm, dropout, clip, reduction, softmax."""
    channels = rng.uniform(0.5, 2, 8).astype(np.float32)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "g": channels,
        "b": channels * 2,
        "m": channels - 1,
        "v": channels,
        "f": rng.standard_normal((8, 10)).astype(np.float32),
    }
    clip = "k = Clip<min=0.0,max=6.0>(d)" if opset < 11 else "k = Clip(d, zero, six)"
    flat = "s = Squeeze<axes=[2,3]>(p)" if opset < 13 else "s = Squeeze(p, axes)"
    if opset >= 11:
        weights |= {"zero": np.float32(0), "six": np.float32(6)}
    if opset >= 13:
        weights["axes"] = np.array([2, 3])
    body = (
        "[conv] c = Conv<pads=[1,1,1,1]>(x, w) [norm] n = BatchNormalization(c, g, b, m, v)"
        f" [drop] d = Dropout(n) [clip] {clip} [pool] p = GlobalAveragePool(k) [flat] {flat}"
        " [fc] l = MatMul(s, f) [soft] y = Softmax(l)"
    )
    return proto_of(body, inputs="float[batch,3,8,8] x", opset=opset, weights=weights)


@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13, 15, 17, 21, 23, 25])
def test_every_opset(opset, tmp_path, rng):
    proto = network(rng, opset)
    proto.ir_version = 4 if opset < 13 else 10
    model = load_model(saved(proto, tmp_path))
    assert op_types(model.graph) == ["Conv", "Clip", "GlobalAveragePool", "Squeeze", "MatMul", "Softmax"]
    assert set(sources_of(model.graph.graph[0])) == {"conv", "norm", "drop"}
    assert model.graph.opset_imports[""] == max(opset, 13)
    assert model.inputs == (TensorSpec("x", "float32", ("batch", 3, 8, 8)),)
    x = rng.standard_normal((2, 3, 8, 8)).astype(np.float32)
    want = run(proto, {"x": x})[0]
    np.testing.assert_allclose(float_session(model.graph).run(None, {"x": x})[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("opset", "version"), [(17, 10), (22, 10), (23, 11)])
def test_the_newest_format_is_read_as_the_one_that_is_needed(opset, version, tmp_path, rng):
    """What ONNX's helpers write is newer than what libraries take."""
    proto = onnx.helper.make_model(
        proto_of("y = Relu(x)", inputs="float[N,4] x").graph,
        opset_imports=[onnx.helper.make_opsetid("", opset)],
    )
    assert proto.ir_version == onnx.IR_VERSION > version
    graph = load_model(saved(proto, tmp_path)).graph
    assert graph.ir_version == version
    x = rng.standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_array_equal(float_session(graph).run(None, {"x": x})[0], np.maximum(x, 0))


def test_an_older_format_stays(tmp_path):
    proto = proto_of("y = Relu(x)", inputs="float[N,4] x")
    proto.ir_version = 8
    assert load_model(saved(proto, tmp_path)).graph.ir_version == 8


def test_changes_say_what_was_done(tmp_path, rng):
    model = load_model(saved(network(rng, 9), tmp_path))
    assert model.changes[:3] == (
        "removed 1 nodes that change nothing",
        "raised the opset to 13",
        "folded 1 BatchNormalization into the node before",
    )


def test_an_old_opset_that_cannot_be_raised_is_noted(tmp_path):
    model = load_model(saved(proto_of("y = Hardmax(x)", opset=11), tmp_path))
    assert model.notes == ("opset 11 cannot be raised to 13: no per-channel quantization",)


def test_unnamed_and_repeated_nodes(tmp_path):
    proto = proto_of("a = Relu(x) [same] b = Neg(a) [same] c = Abs(b) [Relu_0] y = Exp(c)")
    graph = load_model(saved(proto, tmp_path)).graph.graph
    assert [node.name for node in graph] == ["Relu_0_1", "same", "same_2", "Relu_0"]
    assert [sources_of(node) for node in graph] == [("Relu_0_1",), ("same",), ("same",), ("Relu_0",)]


def test_names_inside_branches_are_unique_too(tmp_path):
    proto = proto_of(
        "y = If (c) <then_branch = p () => (float[...] a) { a = Relu(x) },"
        " else_branch = q () => (float[...] b) { b = Relu(x) }>",
        weights={"c": np.array(True)},
    )
    names = [node.name for node in load_model(saved(proto, tmp_path)).graph.graph.all_nodes()]
    assert len(set(names)) == 3


def test_weights_are_mapped_and_cannot_be_written(tmp_path, rng):
    weight = rng.standard_normal((2000, 100)).astype(np.float32)
    proto = proto_of("y = MatMul(x, w)", inputs="float[3,2000] x", weights={"w": weight})
    array = load_model(saved(proto, tmp_path)).graph.graph.initializers["w"].const_value.numpy()
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, weight)


def test_control_flow_is_kept_and_runs(tmp_path):
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        graph (float[N] x, int64 trips) => (float[N] y)
        <bool go = {1}, float two = {2}>
        {
            half = Div(x, two)
            y = Loop (trips, go, half) <body = step (int64 i, bool c, float[N] v) => (bool d, float[N] w) {
                d = Identity(c)
                e = Identity(v)
                w = Mul(e, two)
            }>
        }"""
    )
    model = load_model(saved(proto, tmp_path))
    assert len(list(model.graph.graph.all_nodes())) == 5
    feeds = {"x": np.ones(3, np.float32), "trips": np.array(4)}
    assert float_session(model.graph).run(None, feeds)[0].tolist() == [8, 8, 8]


def test_quantized_models_are_kept(tmp_path, rng):
    proto = proto_of(
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)"
        " w = DequantizeLinear(wq, ws, wz) y = MatMul(d, w)",
        inputs="float[3,4] x",
        weights={
            "s": np.float32(0.1),
            "z": np.uint8(128),
            "wq": rng.integers(-127, 128, (4, 5)).astype(np.int8),
            "ws": np.float32(0.02),
            "wz": np.int8(0),
        },
    )
    model = load_model(saved(proto, tmp_path))
    assert op_types(model.graph) == ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "MatMul"]
    assert model.changes == ()


def test_a_model_made_in_memory_is_left_alone(rng):
    graph = model_of("a = Identity(x) y = Relu(a)")
    before = ir.to_proto(graph).SerializeToString()
    model = make_model(graph)
    assert (model.path, model.file_bytes) == (None, 0)
    assert op_types(model.graph) == ["Relu"]
    assert ir.to_proto(graph).SerializeToString() == before


def test_casts_to_a_type_that_inference_finds_out_are_removed(tmp_path):
    proto = proto_of("t = Transpose(x) c = Cast<to=1>(t) r = Relu(c) h = Cast<to=11>(r) y = Cast<to=1>(h)")
    assert op_types(load_model(saved(proto, tmp_path)).graph) == ["Transpose", "Relu", "Cast", "Cast"]


def test_inputs_of_every_kind_are_described(tmp_path):
    proto = proto_of(
        "a = Cast<to=1>(i) b = Cast<to=1>(h) c = Add(a, b) y = Cast<to=8>(c)",
        inputs="int64[N,2] i, float16[...] h",
        outputs="string[N,2] y",
    )
    model = load_model(saved(proto, tmp_path))
    assert model.inputs == (TensorSpec("i", "int64", ("N", 2)), TensorSpec("h", "float16", None))
    assert model.outputs == (TensorSpec("y", "string", ("N", 2)),)


def test_what_is_no_model_is_told_how_to_become_one():
    with pytest.raises(UsageError, match="cannot read a model") as caught:
        load_model({"x": 1})
    assert (caught.value.got or "").endswith(".dict")
    assert "onnx.ModelProto" in (caught.value.expected or "")
    assert "torch.onnx.export" in (caught.value.hint or "")


def test_what_has_a_model_is_told_to_give_it():
    class ONNXProgram:
        @property
        def model_proto(self):
            raise AssertionError("made without being asked for")

    with pytest.raises(UsageError, match="cannot read a model") as caught:
        load_model(ONNXProgram())
    assert caught.value.hint == "its `model_proto`"
