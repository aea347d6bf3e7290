# SPDX-License-Identifier: Apache-2.0
"""Rows of codes are picked before they are dequantized, and come out bit for bit."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.pick_codes import pick_codes
from quantrt.ir.session import float_session
from tests.nets import net as read_net
from tests.nets import run_ort
from tests.unit.model.check_pass import op_types

ROWS, COLUMNS = 50, 6
BY_ROWS = """net (int64[B,S] i) => (float[B,S,6] y) {
    t = DequantizeLinear<axis=0>(codes, scale)
    y = Gather(t, i)
}"""
ZEROS = BY_ROWS.replace("scale)", "scale, zero)")
PER_TENSOR = BY_ROWS.replace("<axis=0>", "").replace("scale)", "one, point)")
TWICE = """net (int64[S] i, int64[S] j) => (float[S,6] y) {
    t = DequantizeLinear<axis=0>(codes, scale)
    a = Gather<axis=0>(t, i)
    b = Gather<axis=-2>(t, j)
    y = Add(a, b)
}"""


def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "codes": rng.integers(-127, 128, (ROWS, COLUMNS)).astype(np.int8),
        "scale": rng.uniform(0.01, 1, ROWS).astype(np.float32),
        "zero": np.zeros(ROWS, np.int8),
        "one": np.asarray(0.3, np.float32),
        "point": np.asarray(-7, np.int8),
        "few": rng.uniform(0.01, 1, COLUMNS).astype(np.float32),
    }


def net(text: str, rng: np.random.Generator) -> ir.Model:
    used = {name: array for name, array in arrays(rng).items() if f"{name}," in text or f"{name})" in text}
    return read_net(text, used).graph


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (BY_ROWS, ["Gather", "Gather", "Cast", "Mul"]),
        (ZEROS, ["Gather", "Gather", "Cast", "Mul"]),
        (PER_TENSOR, ["Gather", "DequantizeLinear"]),
    ],
    ids=["rows", "zero points of 0", "one scale"],
)
def test_rows_are_dequantized_behind_the_gather(text: str, want: list[str], rng: np.random.Generator):
    graph = net(text, rng)
    picked = pick_codes(graph)
    assert op_types(graph) == ["DequantizeLinear", "Gather"]
    assert op_types(picked) == want
    feeds = {"i": rng.integers(-ROWS, ROWS, (2, 5))}
    (before,), (after,) = run_ort(graph, feeds), run_ort(picked, feeds)
    assert np.array_equal(before, after)
    assert picked.graph.node(-1).name == graph.graph.node(-1).name
    assert "zero" not in picked.graph.initializers
    float_session(graph).run(None, feeds)  # nothing is left over that a session would miss


def test_several_readers_share_codes_and_scales(rng: np.random.Generator):
    graph = net(TWICE, rng)
    picked = pick_codes(graph)
    feeds = {name: rng.integers(0, ROWS, 4) for name in "ij"}
    assert np.array_equal(*(run_ort(each, feeds)[0] for each in (graph, picked)))
    assert set(picked.graph.initializers) == {"codes", "scale_column"}


OTHERS = {
    "a scale for every column": BY_ROWS.replace("axis=0", "axis=1").replace("scale)", "few)"),
    "columns are picked": BY_ROWS.replace("Gather(", "Gather<axis=1>(").replace("[B,S,6]", "[50,B,S]"),
    "floats": "net (int64[B,S] i) => (float[B,S] y) { y = Gather(scale, i) }",
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_stays_as_it_is(case: str, rng: np.random.Generator):
    graph = net(OTHERS[case], rng)
    assert pick_codes(graph) is graph


def test_a_table_that_something_else_reads_stays_beside_the_rows(rng: np.random.Generator):
    text = BY_ROWS.replace("=> (float[B,S,6] y)", "=> (float[B,S,6] y, float[50,6] z)").replace(
        "y = G", "z = Neg(t) y = G"
    )
    graph = net(text, rng)
    picked = pick_codes(graph)
    assert sorted(op_types(picked)) == sorted(["DequantizeLinear", "Neg", "Gather", "Gather", "Cast", "Mul"])
    feeds = {"i": rng.integers(0, ROWS, (2, 5))}
    for before, after in zip(run_ort(graph, feeds), run_ort(picked, feeds), strict=True):
        assert np.array_equal(before, after)
