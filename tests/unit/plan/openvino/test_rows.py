# SPDX-License-Identifier: Apache-2.0
import numpy as np
import onnx_ir as ir
import openvino
import pytest

from quantrt.ir.session import float_session
from quantrt.plan import lower
from quantrt.plan.openvino.rows import list_rows
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import edited, leaves_alone, net, quantized, samples, weights
from tests.unit.model.check_pass import op_types

INPUTS = {"x": samples(2, 4, 6, 16)}
SHAPES = {"scale": (16,), "shift": (16,), "w": (16, 32), "b": (32,), "v": (32, 16)}

BLOCK = """net (float[N,4,6,16] x) => (float[N,4,6,16] y) {
  n = LayerNormalization<axis = -1>(x, scale, shift)
  m = MatMul(n, w)
  a = Add(m, b)
  g = Relu(a)
  p = MatMul(g, v)
  y = Add(p, x)
}"""


def outputs(graph: ir.Model) -> list[np.ndarray]:
    return list(float_session(graph, optimize=False).run(None, INPUTS))


def test_rows_of_a_map_are_one_list_from_the_normalization_to_the_last_product():
    graph = net(BLOCK, weights(SHAPES)).graph
    listed = edited(list_rows, graph)
    assert op_types(listed) == [
        *("Reshape", "LayerNormalization", "MatMul", "Add", "Relu", "MatMul", "Add", "Reshape"),
    ]
    assert [node.name for node in graph.graph if node.op_type == "MatMul"] == [
        node.name for node in listed.graph if node.op_type == "MatMul"
    ]
    np.testing.assert_array_equal(outputs(listed)[0], outputs(graph)[0])


def test_codes_stay_codes():
    graph = write(quantized(net(BLOCK, weights(SHAPES)), OPENVINO, INPUTS))
    listed = edited(list_rows, graph)
    assert op_types(listed).count("QuantizeLinear") == op_types(graph).count("QuantizeLinear")
    assert op_types(listed).count("Reshape") == 2
    np.testing.assert_array_equal(outputs(listed)[0], outputs(graph)[0])


def layers(graph: ir.Model) -> dict[str, list[str]]:
    """What OpenVINO runs for INPUTS: names of what each kernel computes, by its kind."""
    lowered = lower.lower_to_openvino(graph)
    core = openvino.Core()
    model = core.read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))
    model.reshape(list(INPUTS["x"].shape))
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found: dict[str, list[str]] = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        facts = node.get_rt_info()
        kind = facts["layerType"].astype(str)
        found.setdefault(kind, []).append(facts["originalLayersNames"].astype(str))
    return found


def test_openvino_normalizes_in_one_kernel_and_quantizes_in_the_products(monkeypatch: pytest.MonkeyPatch):
    graph = write(quantized(net(BLOCK, weights(SHAPES)), OPENVINO, INPUTS))
    listed = layers(graph)
    assert len(listed["MVN"]) == 1
    assert "g_quantize" in listed["FullyConnected"][0]
    monkeypatch.setattr(lower, "list_rows", lambda same: same)
    given = layers(graph)
    assert "MVN" not in given
    assert "g_quantize" not in given["FullyConnected"][0]


@pytest.mark.parametrize(
    "body",
    [
        "y = LayerNormalization<axis = 2>(x, plane, plane)",
        "t = Transpose<perm = [0, 1, 3, 2]>(x) y = MatMul(x, t)",
        "y = Mul(x, scale)",
        "r = Reshape(x, rows) y = MatMul(r, w)",
    ],
    ids=["of planes", "no constant", "nothing but numbers", "a list already"],
)
def test_all_else_stays(body: str):
    used = {name: shape for name, shape in {**SHAPES, "plane": (6, 16)}.items() if f" {name}" in body}
    rows = "<int64[3] rows = {0, 24, 16}>" if "rows" in body else ""
    rank = "A,B,C" if rows else "A,B,C,D"
    graph = net(f"net (float[N,4,6,16] x) => (float[{rank}] y) {rows} {{ {body} }}", weights(used)).graph
    assert leaves_alone(list_rows, graph)


def test_what_reads_a_map_beside_a_list_gets_the_map():
    text = """net (float[N,4,6,16] x) => (float[N,4,6,32] y, float[N,16,4,6] z) {
      n = LayerNormalization<axis = 3>(x, scale, shift)
      y = MatMul(n, w)
      z = Transpose<perm = [0, 3, 1, 2]>(n)
    }"""
    graph = net(text, weights({name: SHAPES[name] for name in ("scale", "shift", "w")})).graph
    listed = edited(list_rows, graph)
    assert op_types(listed) == ["Reshape", "LayerNormalization", "Reshape", "MatMul", "Reshape", "Transpose"]
    for got, wanted in zip(outputs(listed), outputs(graph), strict=True):
        np.testing.assert_array_equal(got, wanted)
