# SPDX-License-Identifier: Apache-2.0
"""x * sigmoid(x) behind codes is one operator of ONNX Runtime's, with the same floats; all else stays."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.onnxruntime.gates import join_gates
from quantrt.plan.plan import ExecOptions, Layer
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.runtime.onnxruntime.watch import optimized_graph
from tests.nets import edited, leaves_alone, run_ort
from tests.plans import make_graph, make_plan

GATE = """net (float[N,8] x) => (float[N,8] y) {
  q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
  g = Sigmoid(d)  m = Mul(d, g)
  r = QuantizeLinear(m, t, z)  y = DequantizeLinear(r, t, z)
}"""

WEIGHTS = {"s": np.float32(0.03), "t": np.float32(0.02), "z": np.uint8(128)}


def kinds(graph: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in graph.graph)


@pytest.mark.parametrize("product", ["Mul(d, g)", "Mul(g, d)"])
def test_a_gate_behind_codes_is_one_operator(product: str):
    graph = make_graph(GATE.replace("Mul(d, g)", product), WEIGHTS)
    joined = edited(join_gates, graph)
    assert kinds(joined) == Counter(QuantizeLinear=2, DequantizeLinear=2, QuickGelu=1)
    assert kinds(graph)["Sigmoid"] == 1, "a copy is edited"


def test_it_makes_the_same_codes():
    graph = make_graph(GATE, WEIGHTS)
    x = {"x": np.linspace(-4, 4, 128, dtype=np.float32).reshape(16, 8)}
    want = run_ort(graph, x)[0]
    np.testing.assert_array_equal(run_ort(edited(join_gates, graph), x)[0], want)


def test_the_library_dequantizes_once():
    """As it is, it gives each reader a DequantizeLinear of its own, and joins nothing."""
    lowered = lower_to_onnxruntime(make_graph(GATE, WEIGHTS))
    found = Counter(node.op_type for node in optimized_graph(lowered, ExecOptions()).graph.node)
    assert found == Counter(QuantizeLinear=2, DequantizeLinear=2, QuickGelu=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("Sigmoid(d)", "Sigmoid(x)", id="of floats"),
        pytest.param("Mul(d, g)", "Mul(x, g)", id="of something else"),
        pytest.param("Mul(d, g)", "Add(d, g)", id="sum"),
        pytest.param(
            "r = QuantizeLinear(m, t, z)", "n = Add(m, g) r = QuantizeLinear(n, t, z)", id="read twice"
        ),
    ],
)
def test_what_is_no_gate_of_codes_stays(before: str, after: str):
    graph = make_graph(GATE.replace(before, after), WEIGHTS)
    assert leaves_alone(join_gates, graph)


def test_the_layer_is_told_to_compute_both_nodes():
    plan = make_plan("onnxruntime", GATE, WEIGHTS)
    names = ("Sigmoid_2", "Mul_3")
    rows = tuple(Layer(name=name, op_type=name[:3], precision="fp32", reason="") for name in names)
    graph = make_graph(GATE, WEIGHTS)
    for node, name in zip(graph.graph, ("Q", "D", *names, "R", "E"), strict=True):
        node.name = name
    layers = engine_layers(replace(plan, model=lower_to_onnxruntime(graph), layers=rows))
    assert next(layer.nodes for layer in layers if layer.kind == "QuickGelu") == names
