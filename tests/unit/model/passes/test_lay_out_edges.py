# SPDX-License-Identifier: Apache-2.0
"""Other orders of axes at the edges of a graph: the same function of what lies elsewhere."""

import numpy as np
import pytest

from quantrt.errors import UsageError
from quantrt.ir.clone import clone
from quantrt.ir.layout import layout_named
from quantrt.model.passes.lay_out_edges import lay_out_edges
from tests.unit.model.check_pass import model_of, op_types, run


@pytest.mark.parametrize("name", ["nhwc", "nchw2", "nchw4"])
@pytest.mark.parametrize("sizes", ["2,4,6,6", "N,4,6,W"])
def test_the_same_function(name: str, sizes: str, rng):
    model = model_of(
        "x_linear = Relu(x) y = Neg(x_linear)", inputs=f"float[{sizes}] x", outputs=f"float[{sizes}] y"
    )
    model.graph.node(0).outputs[0].name = "x.linear"  # the name that the pass would take
    layout, x = layout_named(name), rng.standard_normal((2, 4, 6, 6)).astype(np.float32)
    changed = clone(model)
    assert lay_out_edges(changed, {"x": layout, "y": layout, "other": layout}) == 2
    assert [value.name for value in (*changed.graph.inputs, *changed.graph.outputs)] == ["x", "y"]
    (want,) = run(model, {"x": x})
    (got,) = run(changed, {"x": layout.to_memory_array(x)})
    np.testing.assert_array_equal(layout.to_model_array(got), want)
    assert op_types(model) == ["Relu", "Neg"], "the graph given is as before"
    names = [value.name for node in changed.graph for value in node.outputs]
    assert len(set(names)) == len(names)


def test_an_input_that_is_handed_out_keeps_its_order():
    model = model_of("y = Relu(x)", outputs="float[...] y, float[2,4,6,6] x")
    with pytest.raises(UsageError, match="it is an output too"):
        lay_out_edges(model, {"x": layout_named("nhwc")})


def test_an_output_that_is_also_read_inside(rng):
    model = model_of("y = Relu(x) z = Neg(y)", outputs="float[2,4,6,6] y, float[2,4,6,6] z")
    x = rng.standard_normal((2, 4, 6, 6)).astype(np.float32)
    layout = layout_named("nhwc")
    want = run(model, {"x": x})
    assert lay_out_edges(model, {"y": layout}) == 1
    got = run(model, {"x": x})
    np.testing.assert_array_equal(layout.to_model_array(got[0]), want[0])
    np.testing.assert_array_equal(got[1], want[1])
