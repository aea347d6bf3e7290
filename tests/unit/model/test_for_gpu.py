# SPDX-License-Identifier: Apache-2.0
"""What a model has to be for a GPU."""

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from quantrt.errors import ModelError
from quantrt.model.for_gpu import for_gpu
from quantrt.model.load import make_model
from tests.nets import net

CASES = {
    "input": ("(int4[N,4] x) => (float[N,4] y) { y = Cast<to=1>(x) }", "'x'", "int4"),
    "output": ("(float[N,4] x) => (uint4[N,4] y) { y = Cast<to=21>(x) }", "'y'", "uint4"),
}


@pytest.mark.parametrize("case", CASES)
def test_elements_of_less_than_a_byte_stay_inside(case: str):
    text, name, kind = CASES[case]
    with pytest.raises(ModelError, match=f"neither takes nor gives {name}") as error:
        for_gpu(net(f"net {text}", {}, opset=21))
    assert kind in str(error.value.got) and error.value.hint == "--device cpu"


def test_inside_a_model_they_may_be():
    model = net("net (float[N,4] x) => (float[N,4] y) { q = Cast<to=22>(x) y = Cast<to=1>(q) }", {}, opset=21)
    assert for_gpu(model).inputs == model.inputs


@pytest.mark.parametrize(
    ("node", "got"),
    [
        (
            "y = com.microsoft.MultiHeadAttention<num_heads=3>(x, x, x)",
            "its queries of 4 are not whole heads",
        ),
        ("y = com.microsoft.Inverse(x)", "no spelling of it is known"),
        ("y = com.microsoft.nchwc.Upsample(x)", "channels in the blocks of one processor"),
    ],
)
def test_operators_without_a_spelling_are_refused(node: str, got: str):
    text = f'<ir_version: 8, opset_import: ["" : 17]> net (float[2,4,4] x) => (float[2,4,4] y) {{ {node} }}'
    graph = ir.from_proto(onnx.parser.parse_model(text))
    next(iter(graph.graph)).name = "odd"
    model = make_model(graph)
    with pytest.raises(
        ModelError, match="an engine for a GPU cannot have 'odd', ONNX Runtime's own"
    ) as error:
        for_gpu(model)
    assert got in error.value.got
    assert error.value.hint == "the model as it was before ONNX Runtime optimized it, or --device cpu"
