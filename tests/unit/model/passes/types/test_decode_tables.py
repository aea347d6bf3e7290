# SPDX-License-Identifier: Apache-2.0
"""Tables of codes as floats: what ONNX Runtime gathers of them."""

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant, int_attribute
from quantrt.model.passes.types.decode_tables import decode_tables
from tests.nets import net, run_ort

IDS = {"ids": np.array([[0, 7, 3], [9, 9, 1]], np.int64)}


def table(rng: np.random.Generator, *, bits: int, has_zeros: bool, **attributes: int) -> ir.Model:
    """Ten rows of 48 codes in blocks of 32, so that the last one is half a block."""
    graph = clone(net("g (int64[N,S] ids) => (float[N,S,48] y) { y = Gather(w, ids) }", _floats()).graph)
    per_byte = 8 // bits
    codes = rng.integers(0, 256, (10, 48 // per_byte)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (10, 2)).astype(np.float32)
    operands = [add_constant(graph, "codes", codes), graph.graph.inputs[0], add_constant(graph, "s", scales)]
    if has_zeros:
        zeros = rng.integers(0, 256, (10, 2 // per_byte)).astype(np.uint8)
        operands.append(add_constant(graph, "z", zeros))
    given = {"bits": bits, "block_size": 32, "gather_axis": 0, "quantize_axis": 1, **attributes}
    (old,) = graph.graph
    node = ir.node("GatherBlockQuantized", operands, attributes=given, domain="com.microsoft", name="take")
    result, made = old.outputs[0], node.outputs[0]
    made.shape, made.type = result.shape, result.type
    graph.graph.insert_before(old, [node])
    result.replace_all_uses_with(made, replace_graph_outputs=True)
    graph.graph.remove(old, safe=True)
    result.name, made.name = None, "y"
    graph.opset_imports["com.microsoft"] = 1
    return graph


def _floats() -> dict[str, np.ndarray]:
    return {"w": np.zeros((10, 48), np.float32)}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_rows_are_those_of_the_codes(rng: np.random.Generator, bits: int, has_zeros: bool):
    graph = table(rng, bits=bits, has_zeros=has_zeros)
    decoded = clone(graph)
    assert decode_tables(decoded) == 1
    (node,) = decoded.graph
    assert (node.op_type, node.domain, node.name) == ("Gather", "", "take")
    assert int_attribute(node, "axis", 0) == 0
    np.testing.assert_array_equal(run_ort(graph, IDS)[0], run_ort(decoded, IDS)[0])


def test_other_forms_stay(rng: np.random.Generator):
    graph = table(rng, bits=4, has_zeros=False, gather_axis=1, quantize_axis=0)
    assert decode_tables(graph) == 0
    assert [node.op_type for node in graph.graph] == ["GatherBlockQuantized"]


def test_blocks_that_are_not_those_of_the_scales_are_not_spread(rng: np.random.Generator):
    graph = table(rng, bits=8, has_zeros=False, block_size=1 << 40)
    assert decode_tables(graph) == 0
