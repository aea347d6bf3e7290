# SPDX-License-Identifier: Apache-2.0
import re
from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.session import float_session
from quantrt.plan.openvino.heads import split_heads
from quantrt.quantize.qdq.write import write
from quantrt.quantize.targets.openvino import OPENVINO
from tests.nets import (
    edited,
    leaves_alone,
    net,
    nodes,
    openvino_kernels,
    quantized,
    run_openvino,
    samples,
    weights,
)

TOKENS, HEADS, WIDTH = 6, 2, 64
INPUTS = {"x": samples(3, TOKENS, 128)}
SHAPES = {"w": (128, 384), "b": (384,), "w_out": (128, 128)}

SPLIT = (
    "p0, p1, p2 = Split<axis=0>(t, ones) q = Squeeze(p0, first) k = Squeeze(p1, first) v = Squeeze(p2, first)"
)
PICKS = "q = Gather<axis=0>(t, i0) k = Gather<axis=0>(t, i1) v = Gather<axis=0>(t, i2)"
SLICES = (
    "p0 = Slice(t, n0, n1, first) p1 = Slice(t, n1, n2, first) p2 = Slice(t, n2, n3, first) "
    "q = Squeeze(p0, first) k = Squeeze(p1, first) v = Squeeze(p2, first)"
)

ATTENTION = """net (float[N,6,128] x) => (float[N,6,128] y) {{
  m = MatMul(x, w)
  a = Add(m, b)
  r = Reshape(a, apart)
  t = Transpose<perm=[2,0,3,1,4]>(r)
  {parts}
  s = Mul(q, half)
  kt = Transpose<perm=[0,1,3,2]>(k)
  d = MatMul(s, kt)
  p = Softmax<axis=-1>(d)
  o = MatMul(p, v)
  u = Transpose<perm=[0,2,1,3]>(o)
  c = Reshape(u, together)
  y = MatMul(c, w_out)
}}"""

NUMBERS = {
    "apart": np.array([-1, TOKENS, 3, HEADS, WIDTH]),
    "together": np.array([0, 0, HEADS * WIDTH]),
    "ones": np.array([1, 1, 1]),
    "first": np.array([0]),
    "half": np.float32(0.125),
    **{f"i{number}": np.array(number) for number in range(3)},
    **{f"n{number}": np.array([number]) for number in range(4)},
}


def attention(parts: str = SPLIT, text: str = ATTENTION):
    whole = text.format(parts=parts)
    numbers = {name: array for name, array in NUMBERS.items() if re.search(rf"\b{name}\b", whole)}
    return net(whole, weights(SHAPES) | numbers)


def run(graph: ir.Model) -> np.ndarray:
    return np.asarray(float_session(graph, optimize=False).run(None, INPUTS)[0])


@pytest.mark.parametrize("parts", [SPLIT, PICKS, SLICES], ids=["split", "picks", "slices"])
def test_each_part_is_a_product(parts: str):
    graph = attention(parts).graph
    split = edited(split_heads, graph)
    products = [node for node in nodes(split, "MatMul") if "/part_" in node.name]
    assert [node.name[-7:] for node in products] == ["/part_0", "/part_1", "/part_2"]
    assert [tuple(node.inputs[1].shape) for node in products] == [(128, 128)] * 3
    assert not nodes(split, "Split") + nodes(split, "Gather") + nodes(split, "Slice")
    assert len(nodes(graph, "MatMul")) == 4  # as it was
    # Columns of a product do not depend on each other: equal up to the order in which BLAS sums.
    np.testing.assert_allclose(run(split), run(graph), rtol=0, atol=1e-5)


def test_what_is_alike_comes_before_axes_are_turned():
    split = edited(split_heads, write(quantized(attention(), OPENVINO, INPUTS)))
    added = [node for node in nodes(split, "Add") if "/part_" in node.name]
    behind = []
    for node in added:
        ops = []
        while (uses := list(node.outputs[0].uses())) and len(uses) == 1 and uses[0].node.op_type != "MatMul":
            node = uses[0].node
            ops.append(node.op_type)
        behind.append(ops)
    pair = ["QuantizeLinear", "DequantizeLinear"]
    assert behind == [
        ["Mul", *pair, "Reshape", "Transpose"],
        [*pair, "Reshape", "Transpose", "Transpose"],
        [*pair, "Reshape", "Transpose"],
    ]


def test_codes_are_what_they_were():
    graph = write(quantized(attention(), OPENVINO, INPUTS))
    split = edited(split_heads, graph)
    codes = [node.inputs[0].const_value for node in nodes(split, "DequantizeLinear") if "part_" in node.name]
    stored = [tensor for tensor in codes if tensor is not None]
    assert [(tensor.dtype, tuple(tensor.shape)) for tensor in stored] == [(ir.DataType.INT8, (128, 128))] * 3
    np.testing.assert_allclose(run(split), run(graph), rtol=0, atol=1e-5)  # as above


def test_openvino_quantizes_in_the_kernel_of_each_product():
    graph = write(quantized(attention(), OPENVINO, INPUTS))
    before, after = (
        openvino_kernels(each, INPUTS["x"].shape) for each in (graph, edited(split_heads, graph))
    )
    assert count(before, "FullyConnected") == 2
    assert count(after, "FullyConnected") == 4
    assert count(before, "Split") == 1
    assert count(after, "Split") == 0
    assert count(before, "Subgraph") - count(after, "Subgraph") == 3  # what quantized each part
    want, got = run(graph), run_openvino(graph, INPUTS)[0]
    noise = np.sum((want - got) ** 2) / np.sum(want**2)
    assert noise < 1e-3  # codes that round the other way: 30 dB


def count(kernels: Counter[tuple[str, str]], kind: str) -> int:
    return sum(number for (name, _), number in kernels.items() if name == kind)


def test_tokens_may_come_before_heads():
    text = ATTENTION.replace("perm=[2,0,3,1,4]", "perm=[2,0,1,3,4]").replace(
        "perm=[0,2,1,3]", "perm=[0,1,2,3]"
    )
    graph = attention(text=text).graph
    split = edited(split_heads, graph)
    assert len(nodes(split, "MatMul")) == len(nodes(graph, "MatMul")) + 2
    np.testing.assert_allclose(run(split), run(graph), rtol=0, atol=1e-5)  # as above


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ("r = Reshape(a, apart)", "e = Relu(a) r = Reshape(e, apart)"),
        ("a = Add(m, b)", "a = Add(m, m)"),
        ("y = MatMul(c, w_out)", "z = MatMul(c, w_out) e = ReduceMax(t) y = Add(z, e)"),
        ("float[N,6,128] x", "float[N,S,128] x"),
    ],
    ids=["an activation", "no bias", "another reader", "any number of tokens"],
)
def test_other_products_stay(found: str, instead: str):
    graph = attention(text=ATTENTION.replace(found, instead)).graph
    assert leaves_alone(split_heads, graph)
