# SPDX-License-Identifier: Apache-2.0
"""Each rule on the smallest graph that breaks it, and on one that does not."""

import numpy as np
import pytest

from quantrt.quantize.lint.placement_rules import placement_findings
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets import TARGETS
from quantrt.quantize.targets.cuda import CUDA
from tests.nets import net, quantized, resnet, samples

CONSTANTS = {
    "s": np.asarray(0.02, np.float32),
    "s2": np.asarray(0.05, np.float32),
    "s8": np.linspace(0.01, 0.08, 8, dtype=np.float32),
    "z": np.asarray(0, np.int8),
    "z8": np.zeros(8, np.int8),
    "w": np.arange(-32, 32, dtype=np.int8).reshape(8, 8, 1, 1),
    "ws": np.linspace(0.001, 0.008, 8, dtype=np.float32),
    "f": np.ones((8, 8, 1, 1), np.float32),
    "b": np.arange(8, dtype=np.int32),
    "bs": np.linspace(0.00002, 0.00016, 8, dtype=np.float32),
    "b8": np.arange(8, dtype=np.int8),
}
IMAGE = "net (float[N,8,4,4] x) => (float[N,8,4,4] y) {"
PAIR = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)"
WEIGHT = "dw = DequantizeLinear<axis=0>(w, ws)"


def rules(text: str) -> list[tuple[str, str]]:
    """(rule, node) of all findings in a body of ONNX text."""
    graph = net(f"{IMAGE} {text} }}", CONSTANTS).graph.graph
    return [(found.rule.name, found.node) for found in placement_findings(graph)]


@pytest.mark.parametrize(
    ("text", "rule", "op_type"),
    [
        (f"{PAIR} y = Softmax(d)", "useless", "QuantizeLinear"),
        (f"{PAIR} r = Relu(d) y = Exp(r)", "useless", "QuantizeLinear"),
        (
            f"{PAIR} {WEIGHT} q2 = QuantizeLinear(d, s2, z) d2 = DequantizeLinear(q2, s2, z)"
            " y = Conv(d2, dw)",
            "double",
            "QuantizeLinear",
        ),
        (
            f"{PAIR} {WEIGHT} q2 = QuantizeLinear(d, s, z) d2 = DequantizeLinear(q2, s, z) y = Conv(d2, dw)",
            "repeated",
            "QuantizeLinear",
        ),
        (
            f"{PAIR} {WEIGHT} q2 = QuantizeLinear(x, s, z) d2 = DequantizeLinear(q2, s, z) a = Conv(d, dw)"
            " c = Conv(d2, dw) y = Concat<axis=0>(a, c)",
            "repeated",
            "QuantizeLinear",
        ),
        (
            f"q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s2, z) {WEIGHT} y = Conv(d, dw)",
            "mismatch",
            "DequantizeLinear",
        ),
        (f"{PAIR} y = Conv(d, f)", "one-sided", "Conv"),
        (f"{WEIGHT} y = Conv(x, dw)", "one-sided", "Conv"),
        (
            f"{PAIR} t = Transpose<perm=[0,1,3,2]>(x) y = MatMul(d, t)",
            "one-sided",
            "MatMul",
        ),
        (
            f"{PAIR} {WEIGHT} a = Conv(d, dw) q2 = QuantizeLinear(a, s2, z) d2 = DequantizeLinear(q2, s2, z)"
            " r = Relu(d2) q3 = QuantizeLinear(r, s2, z) d3 = DequantizeLinear(q3, s2, z) y = Conv(d3, dw)",
            "split",
            "QuantizeLinear",
        ),
        (f"{PAIR} {WEIGHT} a = Conv(d, dw) y = Add(a, x)", "residual", "Add"),
        (
            f"{PAIR} {WEIGHT} q2 = QuantizeLinear(x, s2, z) d2 = DequantizeLinear(q2, s2, z)"
            " c = Concat<axis=0>(d, d2) y = Conv(c, dw)",
            "concat",
            "Concat",
        ),
        (
            f"q = QuantizeLinear<axis=1>(x, s8, z8) d = DequantizeLinear<axis=1>(q, s8, z8) {WEIGHT}"
            " y = Conv(d, dw)",
            "per-channel",
            "QuantizeLinear",
        ),
        (f"{PAIR} {WEIGHT} db = DequantizeLinear(b8, s) y = Conv(d, dw, db)", "bias", "Conv"),
        (f"{PAIR} {WEIGHT} db = DequantizeLinear<axis=0>(b, ws) y = Conv(d, dw, db)", "bias", "Conv"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_rule_tells_the_node_that_breaks_it(text: str, rule: str, op_type: str):
    found = rules(text)
    assert [name for name, _ in found] == [rule]
    assert found[0][1].startswith(op_type)


@pytest.mark.parametrize(
    "text",
    [
        f"{PAIR} {WEIGHT} y = Conv(d, dw)",
        f"{PAIR} {WEIGHT} db = DequantizeLinear<axis=0>(b, bs) y = Conv(d, dw, db)",
        f"{PAIR} {WEIGHT} a = Conv(d, dw) y = Add(a, d)",
        f"{PAIR} r = Sigmoid(d) q2 = QuantizeLinear(r, s2, z) y = DequantizeLinear(q2, s2, z)",
        f"{PAIR} {WEIGHT} t = Transpose<perm=[0,1,3,2]>(d) q2 = QuantizeLinear(t, s, z)"
        " d2 = DequantizeLinear(q2, s, z) y = Conv(d2, dw)",
        "y = Relu(x)",
    ],
)
def test_sound_graphs_have_no_findings(text: str):
    assert rules(text) == []


def test_a_pair_that_nothing_reads_dangles():
    graph = net(f"{IMAGE} y = Relu(x) }}", CONSTANTS)
    other = net(f"{IMAGE} {PAIR} y = Identity(d) }}", CONSTANTS)
    assert placement_findings(graph.graph.graph) == []
    pair = next(node for node in other.graph.graph if node.op_type == "DequantizeLinear")
    other.graph.graph.outputs[0] = other.graph.graph.inputs[0]
    found = placement_findings(other.graph.graph)
    assert [(row.rule.name, row.node) for row in found] == [("dangling", pair.name)]


@pytest.mark.parametrize("target", [*TARGETS, CUDA], ids=lambda target: target.name)
def test_what_is_written_for_a_target_has_no_findings(target):
    model = resnet()
    graph = write(quantized(model, target, {"x": samples(4, 3, 16, 16)}))
    found = placement_findings(graph.graph)
    assert found == []
