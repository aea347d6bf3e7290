# SPDX-License-Identifier: Apache-2.0
"""Which codes beside 16-bit floats are not worth opening."""

from contextlib import closing

import numpy as np
import pytest

from quantrt.model.model import Model
from quantrt.plan.lower import lower_to_openvino
from quantrt.plan.plan import ExecOptions
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.openvino import OPENVINO
from quantrt.runtime.executor import open_executor
from quantrt.tactics.candidate import Candidate, Spec
from quantrt.tactics.few_floats import why_left_out
from tests.nets import net, quantized, samples, weights

INT8, BESIDE_BF16 = Spec("openvino", "int8"), Spec("openvino", "int8", "bf16")
SHAPES = {"k0": (8, 3, 3, 3), "k1": (8, 8, 3, 3), "k2": (8, 8, 4, 4), "s": (1,), "b": (1,)}

CONVOLUTIONS = """
    c0 = Conv <pads = [1, 1, 1, 1]> (x, k0)  r0 = Relu (c0)
    c1 = Conv <pads = [1, 1, 1, 1]> (r0, k1)  r1 = Relu (c1)
    c2 = Conv <strides = [4, 4]> (r1, k2)  r2 = Relu (c2)"""
ENDS = {
    "codes": "y = Conv <strides = [4, 4]> (r2, k2)",
    "few floats": "e = Exp (r2)  y = Conv <strides = [4, 4]> (e, k2)",
    "a kernel that may take any time": """
        c3 = Conv <strides = [4, 4]> (r2, k2)  n = LayerNormalization <axis = 3> (c3, s, b)  y = Relu (n)""",
}
MIDDLE = CONVOLUTIONS.replace("r1 = Relu (c1)", "r1 = Exp (c1)")


PRODUCTS = """net (float[N,256] x) => (float[N,8] y) {
    f0 = MatMul (x, m)  r0 = Relu (f0)  f1 = MatMul (r0, m)  r1 = Relu (f1)  f2 = MatMul (r1, o)
    p = MatMul (x, o)  y = Add (f2, p) }"""


def reason(body: str, spec: Spec = BESIDE_BF16) -> str | None:
    """Of a network of convolutions that was opened in int8."""
    text = f"net (float[N,3,16,16] x) => (float[N,8,1,1] y) {{ {body} }}"
    return reason_of(net(text, weights(SHAPES)), samples(8, 3, 16, 16), spec)


def reason_of(model: Model, data: np.ndarray, spec: Spec = BESIDE_BF16, **options: object) -> str | None:
    lowered = lower_to_openvino(write(quantized(model, OPENVINO, {"x": data}, **options)))
    with closing(open_executor(lowered, ExecOptions(), output_names=["y"])) as executor:
        executor.run({"x": data[:1]})
        return why_left_out(spec, {INT8.name: Candidate(INT8, lowered, ExecOptions(), executor, None)})


@pytest.mark.parametrize(
    ("end", "is_left_out"),
    [("codes", True), ("few floats", True), ("a kernel that may take any time", False)],
)
def test_they_are_left_out_where_next_to_nothing_is_in_floats(end: str, is_left_out: bool):
    found = reason(CONVOLUTIONS + ENDS[end])
    assert (found is not None) == is_left_out
    assert found is None or found.endswith(
        "of what openvino int8 reads is in floats: bf16 has nothing to gain there"
    )


def test_they_are_not_where_floats_read_much():
    assert reason(MIDDLE + ENDS["codes"]) is None


def test_they_are_not_where_a_product_is_in_floats_though_it_reads_an_input():
    model = net(PRODUCTS, weights({"m": (256, 256), "o": (256, 8)}))
    assert reason_of(model, samples(8, 256)) is not None
    assert reason_of(model, samples(8, 256), exclude=("MatMul_5",)) is None


@pytest.mark.parametrize(
    "spec",
    [
        INT8,
        Spec("openvino", "bf16", "bf16"),
        Spec("onnxruntime", "int8", "bf16"),
        Spec("cuda", "int8", "fp16"),
    ],
)
def test_nothing_else_is(spec: Spec):
    assert reason(CONVOLUTIONS + ENDS["codes"], spec) is None


def test_nor_codes_without_the_same_beside_fp32():
    assert why_left_out(BESIDE_BF16, {}) is None
