# SPDX-License-Identifier: Apache-2.0
"""Graphs for cuDNN as JSON: what is written is what is read, and nonsense is refused."""

import json
from dataclasses import replace

import pytest

from quantrt.errors import ModelError
from quantrt.plan.cudnn_plan import CudnnGraph, graph_from_json, graph_key, graph_to_json

GRAPH = CudnnGraph(
    x=(2, 16, 9, 7),
    weight=(24, 16, 3, 3),
    dtype="int8",
    strides=(2, 1),
    dilations=(1, 2),
    pads=(1, 0, 2, 3),
    operands=("channel", "scalar", "float16"),
    ops=(("mul", (0, 1)), ("add", (4, 3)), ("relu", (5,)), ("div", (6, 2))),
    outputs=((7, "int8"),),
)


def test_a_graph_is_what_its_json_says():
    assert graph_from_json(json.loads(json.dumps(graph_to_json(GRAPH)))) == GRAPH


def test_the_output_has_the_convolution_s_sizes():
    assert GRAPH.output_shape == (2, 24, (9 + 3 - 2 - 1) // 2 + 1, 7 + 3 - 4)


def test_the_key_is_of_everything_in_the_graph():
    others = [
        replace(GRAPH, x=(3, 16, 9, 7)),
        replace(GRAPH, dtype="float16"),
        replace(GRAPH, ops=(*GRAPH.ops, ("neg", (7,)))),
        replace(GRAPH, rank=1),
    ]
    assert graph_key(replace(GRAPH)) == graph_key(GRAPH)
    assert len({graph_key(graph) for graph in (GRAPH, *others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"dtype": "int4"}, "int4"),
        ({"operands": ["channel", "row", "float16"]}, "row"),
        ({"ops": [["mul", [0, 9]]]}, "registers"),
        ({"ops": [["mul", [0]]]}, "registers"),
        ({"ops": [["launch", [0]]]}, "launch"),
        ({"ops": [["relu", [0]]] * 300}, "300 operations"),
        ({"outputs": [[70, "int8"]]}, "outputs"),
        ({"outputs": []}, "outputs"),
        ({"x": [2, 16, 9]}, "sizes"),
        ({"x": [2, 0, 9, 7]}, "sizes"),
        ({"pads": [0, 0, 0, -1]}, "pads"),
        ({"strides": "11"}, "TypeError"),
        ({"rank": -1}, "-1"),
    ],
)
def test_what_is_no_graph_is_refused(change: dict, got: str):
    with pytest.raises(ModelError, match="cannot read a cuDNN graph") as failure:
        graph_from_json({**graph_to_json(GRAPH), **change})
    assert got in str(failure.value.got)


@pytest.mark.parametrize("data", [None, [], {}, {**graph_to_json(GRAPH), "more": 1}])
def test_other_fields_are_no_graph(data: object):
    with pytest.raises(ModelError, match="cannot read a cuDNN graph"):
        graph_from_json(data)
