# SPDX-License-Identifier: Apache-2.0
"""Graphs in 16-bit floats as graphs in float32: the same ends, nothing narrow in between."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from quantrt.ir.clone import clone
from quantrt.ir.shapes import infer_shapes
from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.load import load_model, make_model
from quantrt.model.passes.types.widen_halves import widen_halves
from quantrt.quantize.explicit.read import read
from quantrt.quantize.placement.placement import place
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.reference.metrics import sqnr_db
from tests.nets import net, run_ort

HALF = np.float16
WEIGHTS = {
    "s": np.asarray(0.02, HALF),
    "z": np.asarray(0, np.int8),
    "w": np.arange(-18, 18, dtype=np.int8).reshape(6, 6),
    "ws": np.linspace(0.001, 0.006, 6, dtype=HALF),
    "b": np.linspace(-1, 1, 6, dtype=HALF),
}
TEXT = """net (float16[N,6] x) => (float16[N,6] y) {
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  dw = DequantizeLinear<axis=1>(w, ws)
  m = MatMul(d, dw)
  y = Add(m, b)
}"""


def halves(graph: ir.Model) -> list[str]:
    values = [value for node in graph.graph for value in node.outputs]
    values += graph.graph.initializers.values()
    return [value.name or "" for value in values if value.dtype == ir.DataType.FLOAT16]


def as_written(text: str, arrays: Mapping[str, np.ndarray], opset: int) -> ir.Model:
    """The graph of a text, not canonical."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in arrays.items())
    name_nodes(proto.graph)
    return ir.from_proto(proto)


def test_only_the_ends_stay_narrow(rng):
    model = as_written(TEXT, WEIGHTS, 19)
    graph = clone(model)
    assert widen_halves(graph) == 3
    infer_shapes(graph)
    assert halves(graph) == ["y"]
    onnx.checker.check_model(ir.to_proto(graph), full_check=True)
    inputs = {"x": rng.standard_normal((5, 6)).astype(HALF)}
    (want,), (got,) = run_ort(model, inputs), run_ort(graph, inputs)
    assert got.dtype == HALF
    assert sqnr_db(want.astype(np.float32), got.astype(np.float32)) > 50


def test_a_graph_without_halves_is_left(rng):
    model = net("net (float[N,6] x) => (float[N,6] y) { y = Relu(x) }")
    assert widen_halves(clone(model.graph)) == 0


def test_casts_between_floats_cancel():
    text = "net (float[N,6] x) => (float[N,6] y) { h = Cast<to=10>(x) r = Exp(h) y = Cast<to=1>(r) }"
    graph = as_written(text, {}, 17)
    assert widen_halves(graph) == 1
    assert halves(graph) == []
    assert make_model(graph).graph.graph.num_nodes() == 1


def test_a_quantized_model_in_float16_reads_codes(tmp_path):
    path = tmp_path / "half.onnx"
    onnx.save(ir.to_proto(as_written(TEXT, WEIGHTS, 19)), path)
    found = read(load_model(path))
    assert found.has_int8
    (name,) = found.activations
    assert float(found.activations[name].scale) == float(np.float32(HALF(0.02)))


def test_sequences_are_of_float32_too():
    text = """net (float16[N,6] x) => (float16[M,6] y) {
      s = SequenceConstruct(x, x) y = ConcatFromSequence<axis=0>(s)
    }"""
    graph = net(text, opset=17).graph
    inputs = {"x": np.arange(12, dtype=HALF).reshape(2, 6)}
    (sequence,) = (value for node in graph.graph for value in node.outputs if value.name == "s")
    assert sequence.type == ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))
    (got,) = run_ort(graph, inputs)
    assert got.dtype == HALF and got.shape == (4, 6)


def test_a_loaded_model_computes_in_float32_and_is_quantized():
    text = "net (float16[N,6] x) => (float16[N,6] y) { m = MatMul(x, w) r = Relu(m) y = Add(r, b) }"
    model = net(text, {"w": np.eye(6, dtype=HALF), "b": np.ones(6, HALF)})
    assert halves(model.graph) == ["y"] and [spec.dtype for spec in model.inputs] == ["float16"]
    assert place(model.graph, OPENVINO).weights.keys() == {("MatMul_0", 1)}


def test_ends_in_bfloat16_are_float32():
    """A CPU's libraries take them from no array; engines for a GPU have them all the same."""
    text = "net (bfloat16[N,6] x) => (bfloat16[N,6] y) { m = MatMul(x, w) y = Relu(m) }"
    model = net(text, {"w": np.eye(6).astype(ml_dtypes.bfloat16)})
    assert model.notes == (
        "'x', 'y': bfloat16 in the file and in an engine for a GPU, float32 in one for a CPU",
    )
    assert [spec.dtype for spec in (*model.inputs, *model.outputs)] == ["float32", "float32"]
    assert model.bfloats == {"x", "y"}
    assert place(model.graph, OPENVINO).weights.keys() == {("MatMul_0", 1)}
    (got,) = run_ort(model.graph, {"x": np.float32([[1, -2, 3, -4, 5, -6]])})
    np.testing.assert_array_equal(got, [[1, 0, 3, 0, 5, 0]])
