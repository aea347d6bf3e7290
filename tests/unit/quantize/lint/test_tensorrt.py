# SPDX-License-Identifier: Apache-2.0
"""TensorRT's documented rules on the smallest graphs that break them; what is written for it keeps them."""

from collections import Counter

import numpy as np
import pytest

from quantrt.quantize.lint.as_given import graph_as_given
from quantrt.quantize.lint.tensorrt import tensorrt_findings
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.onnxruntime import ORT
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.quantize.targets.tensorrt import TENSORRT
from tests.nets import net, quantized, resnet, samples
from tests.unit.quantize.lint.test_placement_rules import CONSTANTS, IMAGE, PAIR, WEIGHT

MORE = {
    **CONSTANTS,
    "z7": np.asarray(7, np.int8),
    "u": np.asarray(0, np.uint8),
    "neg": np.asarray(-0.1, np.float32),
    "m": np.arange(-8, 8, dtype=np.int8).reshape(4, 4),
    "ms": np.linspace(0.001, 0.004, 4, dtype=np.float32),
}


def errors(text: str) -> list[str]:
    graph = net(f"{IMAGE} {text} }}", MORE).graph.graph
    return [found.rule.name for found in tensorrt_findings(graph) if found.rule.level == "error"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            f"q = QuantizeLinear(x, s, z7) d = DequantizeLinear(q, s, z7) {WEIGHT} y = Conv(d, dw)",
            ["zero-point"] * 2,
        ),
        (f"q = QuantizeLinear(x, s, u) d = DequantizeLinear(q, s, u) {WEIGHT} y = Conv(d, dw)", ["type"] * 2),
        (f"{PAIR} {WEIGHT} db = DequantizeLinear<axis=0>(b, bs) y = Conv(d, dw, db)", ["quantized-bias"]),
        (f"{PAIR} {WEIGHT} db = DequantizeLinear(b8, s) y = Conv(d, dw, db)", ["quantized-bias"]),
        (f"{PAIR} dw = DequantizeLinear<axis=1>(w, ws) y = Conv(d, dw)", ["weight-axis"]),
        (f"{PAIR} dm = DequantizeLinear<axis=0>(m, ms) y = MatMul(d, dm)", ["weight-axis"]),
        (f"{PAIR} dw = DequantizeLinear(w, neg) y = Conv(d, dw)", ["scale"]),
        (
            f"q = QuantizeLinear<axis=1>(x, s8, z8) d = DequantizeLinear<axis=1>(q, s8, z8) {WEIGHT}"
            " y = Conv(d, dw)",
            ["per-tensor"] * 2,
        ),
        (
            "q, qs, qz = DynamicQuantizeLinear(x) y = DequantizeLinear(q, qs, qz)",
            ["operator", "type", "scale", "zero-point"],
        ),
        (f"{PAIR} {WEIGHT} y = Conv(d, dw)", []),
        (f"{PAIR} dm = DequantizeLinear<axis=1>(m, ms) y = MatMul(d, dm)", []),
    ],
)
def test_what_is_refused(text: str, want: list[str]):
    assert errors(text) == want


def test_every_rule_names_its_source():
    graph = write(quantized(resnet(), ORT, {"x": samples(4, 3, 16, 16)}))
    found = [row for row in tensorrt_findings(graph.graph) if row.rule.level == "error"]
    assert {row.rule.name for row in found} == {"type", "zero-point", "quantized-bias"}
    assert all(row.rule.source and row.rule.fix for row in found)


def test_what_is_written_for_tensorrt_passes():
    graph = write(quantized(resnet(), TENSORRT, {"x": samples(4, 3, 16, 16)}))
    assert tensorrt_findings(graph.graph) == []


def test_what_is_written_for_openvino_does_not():
    graph = write(quantized(resnet(), OPENVINO, {"x": samples(4, 3, 16, 16)}))
    assert {row.rule.name for row in tensorrt_findings(graph.graph) if row.rule.level == "error"} >= {"type"}


def test_files_of_other_tools_are_told_what_breaks_them(shared_data):
    """Counts of a file that ONNX Runtime's quantizer made: symmetric int8, but its biases are int32."""
    graph = graph_as_given(shared_data("qdq_models/ort_cifar10_resnet20_perchannel.qdq.onnx"))
    found = Counter((row.rule.level, row.rule.name) for row in tensorrt_findings(graph.graph))
    assert found["error", "quantized-bias"] == 20
    assert sum(count for (level, _), count in found.items() if level == "error") == 20
    assert found["advice", "split"] == 10
