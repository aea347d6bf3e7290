# SPDX-License-Identifier: Apache-2.0
"""What a model has to be for a GPU."""

import pytest

from quantrt.errors import ModelError
from quantrt.model.for_gpu import for_gpu
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
