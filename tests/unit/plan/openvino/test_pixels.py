# SPDX-License-Identifier: Apache-2.0
import numpy as np
import onnx_ir as ir
import openvino
import pytest

from quantrt.ir.session import float_session
from quantrt.plan.lower import lower_to_openvino
from quantrt.plan.openvino.pixels import multiply_pixels
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import edited, leaves_alone, net, quantized, samples, weights
from tests.unit.model.check_pass import op_types

SHAPES = {"w": (8, 3, 3, 3), "w0": (4, 8, 1, 1), "b0": (4,), "w1": (8, 4, 1, 1), "head": (5, 8, 1, 1)}
INPUTS = {"x": samples(6, 3, 8, 8)}

GATED = """net (float[N,3,8,8] x) => (float[N,8,6,6] y, float[N,5,1,1] z) {
  m = Conv(x, w)
  p = GlobalAveragePool(m)
  f = Conv(p, w0, b0)
  r = Relu(f)
  e = Conv(r, w1)
  s = HardSigmoid(e)
  y = Mul(m, s)
  q = GlobalAveragePool(y)
  z = Conv(q, head)
}"""


def outputs(graph: ir.Model) -> list[np.ndarray]:
    return list(float_session(graph, optimize=False).run(None, INPUTS))


def test_gates_and_heads_become_products_that_stay_rows_up_to_the_map_they_scale():
    graph = net(GATED, weights(SHAPES)).graph
    multiplied = edited(multiply_pixels, graph)
    assert op_types(multiplied) == [
        *("Conv", "GlobalAveragePool"),
        *("Reshape", "Gemm", "Relu", "Gemm", "HardSigmoid", "Reshape"),
        *("Mul", "GlobalAveragePool", "Reshape", "Gemm", "Reshape"),
    ]
    assert op_types(graph).count("Conv") == 4
    for got, wanted in zip(outputs(multiplied), outputs(graph), strict=True):
        # Sums of at most 8 products in another order: a few units in the last place of values near 1.
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)


def test_layers_keep_their_names():
    graph = net(GATED, weights(SHAPES)).graph
    named = {node.name for node in graph.graph}
    assert named <= {node.name for node in edited(multiply_pixels, graph).graph}


def test_codes_stay_codes():
    model = net(GATED, weights(SHAPES))
    graph = write(quantized(model, OPENVINO, INPUTS))
    multiplied = edited(multiply_pixels, graph)
    head = next(node for node in multiplied.graph if node.outputs[0].name == "z_rows")
    decoder = head.inputs[1].producer()
    assert decoder.op_type == "DequantizeLinear"
    codes = decoder.inputs[0].const_value
    assert (codes.dtype, tuple(codes.shape)) == (ir.DataType.INT8, (5, 8))
    for got, wanted in zip(outputs(multiplied), outputs(graph), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)  # as above
    assert input_types(graph, head.name)[:2] == ["u8", "i8"]


def input_types(graph: ir.Model, layer: str) -> list[str]:
    """Of the kernel that a layer begins in OpenVINO."""
    lowered = lower_to_openvino(graph)
    core = openvino.Core()
    model = core.read_model(lowered.graph.decode(), openvino.Tensor(lowered.weights["bin"]))
    model.reshape([6, 3, 8, 8])
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for node in compiled.get_runtime_model().get_ordered_ops():
        if node.get_rt_info()["originalLayersNames"].astype(str).startswith(layer):
            return [port.get_element_type().get_type_name() for port in node.inputs()]
    raise AssertionError(layer)


@pytest.mark.parametrize(
    "text",
    [
        "y = Conv(x, w)",
        "p = GlobalAveragePool(x) y = Conv<pads=[1,1,1,1]>(p, one)",
        "p = GlobalAveragePool(x) y = Conv<group=3>(p, grouped)",
        "p = GlobalAveragePool(x) k = GlobalMaxPool(x) y = Conv(p, k)",
    ],
    ids=["a map", "with padding", "in groups", "computed weight"],
)
def test_other_convolutions_stay(text: str):
    shapes = {"w": (8, 3, 3, 3), "one": (4, 3, 1, 1), "grouped": (3, 1, 1, 1)}
    used = {name: shape for name, shape in shapes.items() if name in text}
    graph = net(f"net (float[N,3,8,8] x) => (float[N,C,H,W] y) {{ {text} }}", weights(used)).graph
    assert leaves_alone(multiply_pixels, graph)


def test_what_reads_a_map_beside_rows_gets_the_map():
    text = """net (float[N,3,8,8] x) => (float[N,4,8,8] y) {
      p = GlobalAveragePool(x)
      f = Conv(p, one)
      m = Conv(x, other)
      y = Add(m, f)
    }"""
    graph = net(text, weights({"one": (4, 3, 1, 1), "other": (4, 3, 1, 1)})).graph
    multiplied = edited(multiply_pixels, graph)
    assert op_types(multiplied) == ["GlobalAveragePool", "Reshape", "Gemm", "Reshape", "Conv", "Add"]
    np.testing.assert_allclose(outputs(multiplied)[0], outputs(graph)[0], rtol=0, atol=1e-6)  # as above
