# SPDX-License-Identifier: Apache-2.0
"""Codes that floats are made of at load: which weights, and that these are the same floats."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant, constant_of
from quantrt.plan.lower import lower_to_onnxruntime
from quantrt.plan.onnxruntime.stored_weights import spell_stored_weights
from quantrt.plan.plan import ExecOptions
from quantrt.runtime.onnxruntime.watch import optimized_graph
from tests.nets import edited, leaves_alone, net, run_ort

SHAPE = (8, 4, 3, 3)
BY_CHANNELS = """net (float[N,4,6,6] x) => (float[N,8,4,4] y) {
    w = DequantizeLinear<axis=0>(codes, scales)
    y = Conv(x, w)
}"""
ONE_SCALE = BY_CHANNELS.replace("<axis=0>", "").replace("scales)", "one, zero)")
PRODUCT = """net (float[N,6] x) => (float[N,5] y) {
    w = DequantizeLinear<axis=1>(table, columns)
    y = MatMul(x, w)
}"""


def graph_of(text: str, rng: np.random.Generator) -> ir.Model:
    arrays = {
        "codes": rng.integers(-127, 128, SHAPE).astype(np.int8),
        "scales": rng.uniform(0.01, 1, 8).astype(np.float32),
        "table": rng.integers(-127, 128, (6, 5)).astype(np.int8),
        "columns": rng.uniform(0.01, 1, 5).astype(np.float32),
        "one": np.asarray(0.3, np.float32),
        "zero": np.asarray(0, np.int8),
        "point": np.asarray(3, np.int8),
    }
    return net(
        text, {name: a for name, a in arrays.items() if f"{name}," in text or f"{name})" in text}
    ).graph


def feeds_of(graph: ir.Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shape = [2, *graph.graph.inputs[0].shape.dims[1:]]
    return {"x": rng.standard_normal(shape).astype(np.float32)}


def with_floats(graph: ir.Model) -> ir.Model:
    """The same with a constant in the place of its DequantizeLinear."""
    copy = clone(graph)
    node = copy.graph.node(0)
    codes, scale = (constant_of(value) for value in node.inputs[:2])
    along = [1] * codes.ndim
    if scale.ndim:
        along[node.attributes["axis"].as_int()] = -1
    floats = add_constant(copy, "floats", codes * scale.reshape(along))
    node.outputs[0].replace_all_uses_with(floats)
    copy.graph.remove(node, safe=True)
    return copy


@pytest.mark.parametrize("text", [BY_CHANNELS, ONE_SCALE, PRODUCT], ids=["channels", "one scale", "product"])
def test_weights_that_floats_multiply_are_folded_at_load(text: str, rng: np.random.Generator):
    graph = graph_of(text, rng)
    spelled = edited(spell_stored_weights, graph)
    assert [node.op_type for node in spelled.graph][:2] == ["Cast", "Mul"]
    feeds = feeds_of(graph, rng)
    assert np.array_equal(run_ort(with_floats(graph), feeds)[0], run_ort(spelled, feeds)[0])
    made = lower_to_onnxruntime(graph)
    kernels = {node.op_type for node in optimized_graph(made, ExecOptions()).graph.node}
    assert not kernels & {"DequantizeLinear", "Cast", "Mul"}


OTHERS = {
    "codes of an activation": """net (uint8[N,6] q) => (float[N,5] y) {
        x = DequantizeLinear(q, one)
        w = DequantizeLinear<axis=1>(table, columns)
        y = MatMul(x, w)
    }""",
    "codes that are moved first": """net (uint8[N,2,3] q) => (float[N,5] y) {
        x = DequantizeLinear(q, one)
        flat = Flatten(x)
        w = DequantizeLinear<axis=1>(table, columns)
        y = MatMul(flat, w)
    }""",
    "a zero point": PRODUCT.replace("<axis=1>", "").replace("columns)", "one, point)"),
    "read by another operator too": PRODUCT.replace("y = ", "z = Neg(w) y = ").replace(
        "=> (float[N,5] y)", "=> (float[N,5] y, float[6,5] z)"
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_stays_as_it_is(case: str, rng: np.random.Generator):
    graph = graph_of(OTHERS[case], rng)
    assert leaves_alone(spell_stored_weights, graph)


def test_the_codes_are_what_an_engine_holds(rng: np.random.Generator):
    text = BY_CHANNELS.replace("[N,4,6,6]", "[N,64,6,6]").replace("[N,8,4,4]", "[N,64,4,4]")
    arrays = {
        "codes": rng.integers(-127, 128, (64, 64, 3, 3)).astype(np.int8),
        "scales": rng.uniform(0.01, 1, 64).astype(np.float32),
    }
    made = lower_to_onnxruntime(net(text, arrays).graph)
    assert made.weights["codes"].dtype == np.int8
    assert made.size_bytes < 1.1 * arrays["codes"].nbytes
