# SPDX-License-Identifier: Apache-2.0
"""Parts of a graph with branches: what they read is given, what others read is returned."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.errors import ModelError
from quantrt.report.bisect.cut import ancestors, cut
from tests.nets import net, run_ort, samples

TEXT = """net (float[N,4] x) => (float[N,4] y, float[N,4] z) {
  [start] a = MatMul(x, w)
  [left] l = Relu(a)
  [right] r = Neg(a)
  [deep] d = Exp(r)
  [join] y = Add(l, d)
  [side] z = Tanh(d)
}"""


@pytest.fixture
def graph() -> ir.Model:
    return net(TEXT, {"w": samples(4, 4)}).graph


def values_of(graph: ir.Model, x: np.ndarray) -> dict[str, np.ndarray]:
    found = {"x": x, "a": x @ samples(4, 4)}
    found |= {"l": np.maximum(found["a"], 0), "r": -found["a"]}
    return {**found, "d": np.exp(found["r"])}


def test_a_part_takes_what_it_reads_and_returns_what_others_read(graph: ir.Model):
    values = values_of(graph, samples(1, 4, seed=3))
    part = cut(graph, ["right", "deep"], values)
    assert part is not None
    assert (part.nodes, part.inputs, part.outputs) == (("right", "deep"), ("a",), ("d",))
    (d,) = run_ort(part.model, {"a": values["a"]})
    np.testing.assert_allclose(d, values["d"], rtol=1e-5)


def test_a_join_reads_both_branches(graph: ir.Model):
    part = cut(graph, ["join"], values_of(graph, samples(1, 4)))
    assert part is not None
    assert (set(part.inputs), part.outputs) == ({"l", "d"}, ("y",))
    assert [dim if isinstance(dim, int) else str(dim.value) for dim in part.model.graph.inputs[0].shape] == [
        "batch",
        4,
    ]


def test_what_is_not_known_is_made(graph: ir.Model):
    """Only x and a are known: the nodes between a and the one that is wanted come along."""
    values = {name: values_of(graph, samples(1, 4))[name] for name in ("x", "a")}
    part = cut(graph, ["side"], values)
    assert part is not None
    assert (part.nodes, part.inputs) == (("right", "deep", "side"), ("a",))
    with pytest.raises(ModelError, match="'x' is read"):
        cut(graph, ["side"], {})


def test_only_what_is_asked_for_is_returned(graph: ir.Model):
    values = values_of(graph, samples(1, 4))
    part = cut(graph, ["start", "left", "right"], values, ["l"])
    assert part is not None
    assert part.outputs == ("l",)


def test_sizes_are_kept_where_inputs_count_no_samples(graph: ir.Model):
    part = cut(graph, ["right"], values_of(graph, samples(3, 4)))
    assert part is not None
    assert list(part.model.graph.inputs[0].shape) == [3, 4]


def test_ancestors_stop_where_values_are_given(graph: ir.Model):
    assert ancestors(graph, ["d"]) == ["start", "right", "deep"]
    assert ancestors(graph, ["y"], stop={"a"}) == ["left", "right", "deep", "join"]
    assert ancestors(graph, ["x"]) == []
