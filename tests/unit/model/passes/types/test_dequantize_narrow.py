# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 bits and in blocks as floats: what ONNX Runtime makes of them."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from quantrt.errors import ModelError
from quantrt.ir.clone import clone
from quantrt.model.passes.types.dequantize_narrow import dequantize_narrow
from tests.nets import net, samples
from tests.unit.model.contrib.test_codes import run

HEAD = "net (float[N,6] x) => (float[N,5] y) {"


@pytest.mark.parametrize(
    ("attributes", "scale", "zero"),
    [
        ("", (), ()),
        ("axis=1", (5,), (5,)),
        ("axis=-1", (5,), None),
        ("axis=0, block_size=4", (2, 5), (2, 5)),
        ("axis=1, block_size=5", (6, 1), None),
    ],
)
@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4, np.int8])
def test_floats_are_those_of_the_codes(attributes: str, scale, zero, kind, rng):
    lo, hi = (0, 16) if kind == ml_dtypes.uint4 else (-8, 8)
    arrays = {
        "w": rng.integers(lo, hi, (6, 5)).astype(kind),
        "s": rng.uniform(0.01, 0.1, scale).astype(np.float32),
    }
    if zero is not None:
        arrays["z"] = rng.integers(lo, hi, zero).astype(kind)
    text = f"d = DequantizeLinear<{attributes}>(w, s{', z' if zero is not None else ''}) y = MatMul(x, d)"
    model = net(f"{HEAD} {text.replace('<>', '')} }}", arrays, opset=21)
    graph = clone(model.graph)
    is_narrow = kind != np.int8 or "block" in attributes
    assert dequantize_narrow(graph) == int(is_narrow)
    assert len(graph.graph) == (1 if is_narrow else 2)
    inputs = {"x": samples(3, 6)}
    np.testing.assert_array_equal(run(model.graph, inputs)[0], run(graph, inputs)[0])


def test_scales_that_do_not_fit_are_an_error_with_the_node():
    arrays = {"w": np.zeros((6, 5), ml_dtypes.int4), "s": np.ones((4,), np.float32)}
    with pytest.raises(ModelError, match="DequantizeLinear_0") as caught:
        net(f"{HEAD} d = DequantizeLinear<axis=1>(w, s) y = MatMul(x, d) }}", arrays, opset=21)
    assert "[4]" in (caught.value.got or "")


def test_a_computed_scale_stays():
    arrays = {"w": np.zeros((6, 5), ml_dtypes.int4)}
    text = "net (float[N,6] x, float s) => (float[N,5] y) { d = DequantizeLinear(w, s) y = MatMul(x, d) }"
    graph: ir.Model = net(text, arrays, opset=21).graph
    assert dequantize_narrow(graph) == 0
