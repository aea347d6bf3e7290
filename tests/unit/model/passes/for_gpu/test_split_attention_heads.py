# SPDX-License-Identifier: Apache-2.0
"""ONNX's Attention on three axes becomes one on four, and a region of one kernel."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.passes.for_gpu.split_attention_heads import split_attention_heads
from quantrt.regions.partition import partition
from quantrt.regions.region import Attention
from tests.unit.model.check_pass import check_pass, model_of, op_types

FLOAT32 = 1e-6
INPUTS = "float[2,5,24] q, float[2,7,12] k, float[2,7,6] v"


def made(call: str, *, inputs: str = INPUTS, outputs: str = "float[...] y", opset: int = 23) -> ir.Model:
    proto = ir.to_proto(model_of(call, inputs=inputs, outputs=outputs, opset=opset))
    name_nodes(proto.graph)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


CALLS = {
    "plain": ("y = Attention<q_num_heads=4, kv_num_heads=2>(q, k, v)", INPUTS),
    "causal": ("y = Attention<q_num_heads=4, kv_num_heads=2, is_causal=1, scale=0.2>(q, k, v)", INPUTS),
    "a bias": ("y = Attention<q_num_heads=4, kv_num_heads=2>(q, k, v, m)", f"{INPUTS}, float[5,7] m"),
}


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("case", CALLS)
def test_heads_apart(case: str, opset: int, rng: np.random.Generator):
    call, inputs = CALLS[case]
    changed = check_pass(
        split_attention_heads, made(call, inputs=inputs, opset=opset), rng, changes=1, rtol=0, atol=FLOAT32
    )
    assert op_types(changed)[-3:] == ["Attention", "Transpose", "Reshape"]
    regions = partition(changed).regions
    (region,) = (row for row in regions if isinstance(row.formula, Attention))
    assert region.formula.is_causal == (case == "causal")


STAY = {
    "four axes": ("y = Attention(q, k, k)", "float[2,4,5,6] q, float[2,2,7,6] k", "float[...] y"),
    "keys that are handed on": (
        "y, pk, pv = Attention<q_num_heads=4, kv_num_heads=2>(q, k, v)",
        INPUTS,
        "float[...] y, float[...] pk",
    ),
}


@pytest.mark.parametrize("case", STAY)
def test_what_is_something_else_stays(case: str):
    call, inputs, outputs = STAY[case]
    assert split_attention_heads(made(call, inputs=inputs, outputs=outputs)) == 0
