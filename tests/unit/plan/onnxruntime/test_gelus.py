# SPDX-License-Identifier: Apache-2.0
"""GELU behind codes is one operator of ONNX Runtime's, in every exporter's spelling; all else stays."""

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.onnxruntime.gelus import join_gelus
from quantrt.plan.plan import ExecOptions, Layer
from quantrt.report.engine_layers.of_engine import engine_layers
from quantrt.runtime.onnxruntime.watch import optimized_graph
from tests.nets import edited, leaves_alone, run_ort
from tests.plans import make_graph, make_plan

TORCH = "e = Erf(v)  a = Add(e, one)  p = Mul(d, a)  m = Mul(p, half)"
SPELLINGS = {
    "torch": f"v = Div(d, root) {TORCH}",
    "half first": "v = Div(d, root)  e = Erf(v)  a = Add(one, e)  p = Mul(d, half)  m = Mul(p, a)",
    "half second": "v = Div(d, root)  e = Erf(v)  a = Add(e, one)  p = Mul(half, a)  m = Mul(p, d)",
    "multiplied": f"v = Mul(d, inverse) {TORCH}",
}
WEIGHTS = {
    "s": np.float32(0.03),
    "t": np.float32(0.02),
    "z": np.uint8(128),
    "root": np.float32(1.4142135),
    "inverse": np.float32(0.70710677),
    "one": np.float32(1),
    "half": np.float32(0.5),
}


def net(spelling: str) -> ir.Model:
    text = f"""net (float[N,8] x) => (float[N,8] y) {{
      q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
      {spelling}
      r = QuantizeLinear(m, t, z)  y = DequantizeLinear(r, t, z)
    }}"""
    return make_graph(text, WEIGHTS)


def kinds(graph: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in graph.graph)


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_is_joined_and_makes_the_same_codes(spelling: str):
    graph = net(spelling)
    before = kinds(graph)
    joined = edited(join_gelus, graph)
    assert kinds(joined) == Counter(QuantizeLinear=2, DequantizeLinear=2, Gelu=1)
    assert kinds(graph) == before, "a copy is edited"
    x = {"x": np.linspace(-4, 4, 256, dtype=np.float32).reshape(32, 8)}
    np.testing.assert_array_equal(run_ort(joined, x)[0], run_ort(graph, x)[0])


def test_the_library_dequantizes_once():
    lowered = lower_to_onnxruntime(net(SPELLINGS["torch"]))
    found = Counter(node.op_type for node in optimized_graph(lowered, ExecOptions()).graph.node)
    assert found == Counter(QuantizeLinear=2, DequantizeLinear=2, Gelu=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("Div(d, root)", "Div(x, root)", id="of floats"),
        pytest.param("Mul(d, a)", "Mul(x, a)", id="of something else"),
        pytest.param("root)", "half)", id="another root"),
        pytest.param("Add(e, one)", "Add(e, half)", id="another sum"),
        pytest.param("Mul(p, half)", "Mul(p, one)", id="another factor"),
        pytest.param("m = Mul(p, half)", "k = Mul(p, half) m = Add(k, e)", id="erf read twice"),
        pytest.param("m = Mul(p, half)", "k = Mul(p, half) m = Add(k, v)", id="quotient read twice"),
        pytest.param("m = Mul(p, half)", "m = Identity(p)", id="cut off"),
    ],
)
def test_what_is_no_gelu_of_codes_stays(before: str, after: str):
    graph = net(SPELLINGS["torch"].replace(before, after))
    assert leaves_alone(join_gelus, graph)


def test_the_layer_is_told_to_compute_all_nodes():
    graph = net(SPELLINGS["torch"])
    names = ("div", "erf", "add", "first", "last")
    for node, name in zip(graph.graph, ("Q", "D", *names, "R", "E"), strict=True):
        node.name = name
    rows = tuple(Layer(name=name, op_type=name, precision="fp32", reason="") for name in names)
    plan = replace(make_plan("onnxruntime"), model=lower_to_onnxruntime(graph), layers=rows)
    assert next(layer.nodes for layer in engine_layers(plan) if layer.kind == "Gelu") == names
