# SPDX-License-Identifier: Apache-2.0
"""What is written otherwise from opset 13 to 19 gives the same result there."""

import numpy as np
import pytest

from quantrt.ir.clone import clone
from quantrt.model.passes.spell.raise_opset import FLOAT8_OPSET, raise_opset, why_not_raised
from tests.nets import net, run_ort, samples

RANKS = {"reductions": "A,B", "ReduceSum": "A,B", "Reshape": "A,B"}

BODIES = {
    "reductions": "a = ReduceMean<axes=[2],keepdims=0>(x) b = ReduceMax<axes=[1]>(a) y = ReduceL2(b)",
    "Split evenly": "a, b = Split<axis=2>(x) y = Sub(a, b)",
    "Split by sizes": "a, b = Split<axis=2>(x, sizes) y = Concat<axis=2>(b, a)",
    "ReduceSum": "y = ReduceSum<keepdims=0>(x, axes)",
    "pool": "y = AveragePool<kernel_shape=[2],ceil_mode=1,count_include_pad=0>(x)",
    "Reshape": "y = Reshape(x, shape)",
}

CONSTANTS = {
    "sizes": np.array([1, 5], np.int64),
    "axes": np.array([1], np.int64),
    "shape": np.array([0, -1], np.int64),
}


@pytest.mark.parametrize("opset", [13, 16, 17])
@pytest.mark.parametrize("name", BODIES)
def test_the_result_is_the_same(name: str, opset: int):
    body = BODIES[name]
    constants = {key: value for key, value in CONSTANTS.items() if f", {key})" in body}
    dims = RANKS.get(name, "A,B,C")
    model = net(f"net (float[2,4,6] x) => (float[{dims}] y) {{ {body} }}", constants, opset=opset)
    x = {"x": samples(2, 4, 6)}
    (want,) = run_ort(model.graph, x)
    raised = clone(model.graph)
    assert why_not_raised(raised) is None
    assert raise_opset(raised) == 1
    assert raised.opset_imports[""] == FLOAT8_OPSET
    (got,) = run_ort(raised, x)
    np.testing.assert_array_equal(got, want)


def test_a_graph_that_is_there_stays_as_it_is():
    model = net("net (float[2] x) => (float[2] y) { y = Relu(x) }", opset=21)
    assert raise_opset(clone(model.graph)) == 0


def test_an_older_graph_is_refused():
    model = net("net (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.opset_imports[""] = 12
    assert "opset 12 has no float8" in (why_not_raised(model.graph) or "")
