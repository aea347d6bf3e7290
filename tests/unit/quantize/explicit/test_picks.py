# SPDX-License-Identifier: Apache-2.0
"""Codes that plain operators multiply are read as what they were written from."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.pick_codes import pick_codes
from quantrt.plan.onnxruntime.stored_weights import spell_stored_weights
from quantrt.quantize.explicit.picks import spell_picked_codes
from tests.nets import edited, net, run_ort

TEXTS = {
    "rows of a table": """net (int64[B,S] i) => (float[B,S,6] y) {
        t = DequantizeLinear<axis=0>(table, rows)
        y = Gather(t, i)
    }""",
    "a weight by channels": """net (float[N,50] x) => (float[N,6] y) {
        w = DequantizeLinear<axis=1>(table, columns)
        y = MatMul(x, w)
    }""",
    "a weight on one scale": """net (float[N,50] x) => (float[N,6] y) {
        w = DequantizeLinear(table, one)
        y = MatMul(x, w)
    }""",
}


def graph_of(text: str, rng: np.random.Generator) -> ir.Model:
    arrays = {
        "table": rng.integers(-127, 128, (50, 6)).astype(np.int8),
        "rows": rng.uniform(0.01, 1, 50).astype(np.float32),
        "columns": rng.uniform(0.01, 1, 6).astype(np.float32),
        "one": np.asarray(0.25, np.float32),
    }
    return net(text, {n: a for n, a in arrays.items() if f"{n}," in text or f"{n})" in text}).graph


@pytest.mark.parametrize("case", TEXTS)
def test_what_was_written_is_read(case: str, rng: np.random.Generator):
    graph = graph_of(TEXTS[case], rng)
    spelled = edited(spell_stored_weights, pick_codes(graph))
    assert "Cast" in {node.op_type for node in spelled.graph}
    assert spell_picked_codes(spelled) == 1
    assert [node.op_type for node in spelled.graph] == [node.op_type for node in graph.graph]
    assert [node.name for node in spelled.graph][-1] == graph.graph.node(-1).name
    maker, wanted = spelled.graph.node(0), graph.graph.node(0)
    for got, want in zip(maker.inputs, wanted.inputs, strict=True):
        assert np.array_equal(got.const_value.numpy(), want.const_value.numpy())
    assert maker.attributes.get("axis") == wanted.attributes.get("axis") or case == "a weight on one scale"
    shape = (2, 3) if "rows" in case else (2, 50)
    feeds = {"i": rng.integers(0, 50, shape)} if "rows" in case else {"x": np.ones(shape, np.float32)}
    assert np.array_equal(run_ort(spelled, feeds)[0], run_ort(graph, feeds)[0])


OTHERS = {
    "floats that are cast": "net (int64[N] i) => (float[N] y) { f = Cast<to=1>(i) y = Mul(f, one) }",
    "rows of different numbers": """net (int64[S] i, int64[S] j) => (float[S,6] y) {
        a = Gather(table, i) f = Cast<to=1>(a) s = Gather(column, j) y = Mul(f, s)
    }""",
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_scale(case: str, rng: np.random.Generator):
    arrays = {
        "table": rng.integers(-127, 128, (50, 6)).astype(np.int8),
        "column": rng.uniform(0.01, 1, (50, 1)).astype(np.float32),
        "one": np.asarray(0.25, np.float32),
    }
    text = OTHERS[case]
    graph = net(text, {n: a for n, a in arrays.items() if f"{n}," in text or f"{n})" in text}).graph
    assert spell_picked_codes(graph) == 0
