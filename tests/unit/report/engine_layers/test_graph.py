# SPDX-License-Identifier: Apache-2.0
"""Layers are joined by the tensors they share, and aligned by the nodes of the file they share."""

from collections.abc import Sequence
from dataclasses import replace

from quantrt.report.engine_layers.graph import Aligned, align_layers, layer_edges
from quantrt.report.engine_layers.layer import EngineLayer, TensorForm


def form(name: str, dtype: str = "float32") -> TensorForm:
    return TensorForm(name=name, dims=(1,), dtype=dtype, layout="row major")


def layer(name: str, reads: Sequence[str] = (), makes: Sequence[str] = (), sources: str = "") -> EngineLayer:
    return EngineLayer(
        name=name,
        kind="Conv",
        inputs=tuple(map(form, reads)),
        outputs=tuple(map(form, makes)),
        sources=tuple(sources.split()),
    )


def test_edges_follow_the_last_maker_of_a_tensor():
    layers = [
        layer("a", ["x"], ["t"]),
        layer("b", ["t"], ["t"]),  # in place
        layer("c", ["t", "t"], ["y"]),
    ]
    assert [(edge.producer, edge.consumer, edge.tensor) for edge in layer_edges(layers)] == [
        (0, 1, "t"),
        (1, 2, "t"),
    ]


def test_an_edge_has_the_type_that_its_reader_sees():
    a = EngineLayer(name="a", kind="Conv", outputs=(form("t", "int8"),))
    b = EngineLayer(name="b", kind="Conv", inputs=(form("t", "int8"),))
    assert layer_edges([a, b])[0].dtype == "int8"


def test_layers_that_share_a_node_are_together():
    left = [layer("conv", sources="conv norm"), layer("relu", sources="relu"), layer("fc", sources="fc")]
    right = [layer("fused", sources="conv relu"), layer("fc8", sources="fc"), layer("own", sources="new")]
    assert align_layers(left, right) == (
        Aligned(("conv", "norm", "relu"), (0, 1), (0,)),
        Aligned(("fc",), (2,), (1,)),
        Aligned(("new",), (), (2,)),
    )


def test_chains_of_shared_nodes_end_in_one_group():
    left = [layer("a", sources="1 2"), layer("b", sources="3 4"), layer("c", sources="5")]
    right = [layer("x", sources="2 3"), layer("y", sources="4 5")]
    (row,) = align_layers(left, right)
    assert set(row.names) == set("12345") and row.left == (0, 1, 2) and row.right == (0, 1)


def test_layers_without_sources_stand_alone():
    rows = align_layers([layer("cast"), layer("a", sources="a")], [layer("other"), layer("a", sources="a")])
    assert [(row.names, row.left, row.right) for row in rows] == [
        ((), (0,), ()),
        (("a",), (1,), (1,)),
        ((), (), (0,)),
    ]


def test_layers_of_no_node_are_together_where_both_have_the_name():
    left = [layer("relu_clip"), layer("Conv#2"), layer("left")]
    right = [layer("Conv#2"), layer("relu_clip"), replace(layer("left"), kind="Pool")]
    assert align_layers(left, right) == (
        Aligned(("relu_clip",), (0,), (1,)),
        Aligned((), (1,), ()),
        Aligned(("left",), (2,), ()),
        Aligned((), (), (0,)),
        Aligned(("left",), (), (2,)),
    ), "a number that a library gave says nothing, nor does a name of another kind"
