# SPDX-License-Identifier: Apache-2.0
"""A layer in another precision, from another engine's times."""

from quantrt.report.engine_layer import EngineLayer
from quantrt.report.explain.rows import LayerRow
from quantrt.report.explain.times import Times
from quantrt.report.explain.what_if import predict, times_by_node

FUSED = (EngineLayer(name="both", kind="Conv", nodes=("conv", "relu")),)
BY_NODE = times_by_node(FUSED, Times(layer_us={"both": 4.0}, basis="", method="", engine_us=None))


def row(*nodes: str) -> LayerRow:
    return LayerRow(
        layer=EngineLayer(name="here", kind="Conv", nodes=nodes, precision="fp32", computes_in="fp32"),
        time_us=6.0,
        share_ratio=1.0,
        bound="",
        roofline_us=None,
        reached_ratio=None,
        cause="",
        conversions=(),
        missed=(),
    )


def test_the_same_nodes_in_another_engine_are_measured():
    found = predict(row("conv", "relu"), "int8", None, BY_NODE, "o.qrt")
    assert (found.predicted_us, found.gain_us, found.basis) == (4.0, 2.0, "measured here, in o.qrt")


def test_a_node_that_is_fused_in_the_other_engine_has_no_time_of_its_own():
    found = predict(row("relu"), "int8", None, BY_NODE, "o.qrt")
    assert found.predicted_us is None and found.gain_us is None
