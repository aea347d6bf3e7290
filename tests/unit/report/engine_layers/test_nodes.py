# SPDX-License-Identifier: Apache-2.0
"""Why the layers of libraries have their precision."""

import pytest

from quantrt.plan.plan import Layer
from quantrt.report.engine_layers.nodes import PlanNodes, nodes_by_layer

ASKED = "fp32 was the only precision to choose from"


def nodes(precision: str) -> PlanNodes:
    rows = (
        Layer(name="add", op_type="Add", precision=precision, reason="a sum"),
        Layer(name="conv", op_type="Conv", precision=precision, reason=ASKED),
    )
    return PlanNodes({row.name: row for row in rows})


@pytest.mark.parametrize(
    ("precision", "computes_in", "want"),
    [
        ("fp32", "fp32", ASKED),
        ("int8", "int8", ASKED),
        ("int8", "fp32", f"quantized in the graph, computed in fp32 by the library ({ASKED})"),
        ("fp32", "int8", "on codes, by the model's own QuantizeLinear and DequantizeLinear nodes"),
        ("fp32", "", ASKED),
    ],
)
def test_the_product_says_why(precision: str, computes_in: str, want: str):
    assert nodes(precision).reason(["add", "conv"], computes_in) == want


def test_what_moves_codes_keeps_its_reason():
    row = Layer(name="slice", op_type="Slice", precision="fp32", reason="moves values")
    assert PlanNodes({"slice": row}).reason(["slice"], "int8") == "moves values"


def test_nothing_says_nothing():
    assert nodes("fp32").reason([], "fp32") == ""


def test_a_node_of_several_products_is_computed_by_all_of_their_layers():
    plan = PlanNodes({name: Layer(name=name, op_type=name, precision="", reason="") for name in ("m", "add")})
    told = {"m/part_0": "first", "add/part_0": "first", "m/part_1": "second"}
    makers = {"m/part_0": [], "add/part_0": ["m/part_0"], "m/part_1": [], "add/part_1": ["m/part_1"]}
    found = nodes_by_layer(["first", "second"], told, makers, plan, products={"m/part_0", "m/part_1"})
    assert found == {"first": ("m", "add"), "second": ("m",)}
