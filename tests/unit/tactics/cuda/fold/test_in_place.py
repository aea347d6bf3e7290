# SPDX-License-Identifier: Apache-2.0
"""Which Concats are written in place, and why others are not."""

import pytest

from quantrt.quantize.targets.cuda import CUDA
from quantrt.regions.partition import partition
from quantrt.tactics.cuda.fold.in_place import join_in_place
from quantrt.tactics.cuda.forms.forms import choose_forms
from quantrt.tactics.cuda.program.frame import make_frame
from quantrt.tactics.cuda.tactic import TensorFacts, dense_strides
from tests.nets import net, quantized, samples, weights

SHAPES = {"w16": (16, 16, 1, 1), "w8": (8, 16, 1, 1), "wd": (16, 1, 3, 3), "w32": (16, 32, 1, 1)}

HEAD = "net (float[1,16,4,4] x) => (float[1,{channels},4,4] y) {{\n"

CASES = {
    "two convolutions": ("a = Conv(x, w16) b = Conv(x, w16) y = Concat<axis=1>(a, b)", 32, ""),
    "one read by a pool": (
        "a = Conv(x, w16) p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(a) y = Concat<axis=1>(p, a)",
        32,
        "",
    ),
    "along lines": (
        "a = Conv(x, w16) b = Conv(x, w16) c = Concat<axis=2>(a, b) "
        "y = MaxPool<kernel_shape=[2,1], strides=[2,1]>(c)",
        16,
        "not along the channels of images",
    ),
    "a few channels": (
        "a = Conv(x, w8) b = Conv(x, w16) c = Conv(x, w8) d = Concat<axis=1>(a, b, c) y = Conv(d, w32)",
        16,
        "do not begin at multiples of 16 bytes",
    ),
    "an input": ("a = Conv(x, w16) y = Concat<axis=1>(a, x)", 32, "makes 'x#float16' without gaps"),
    "twice the same": ("a = Conv(x, w16) y = Concat<axis=1>(a, a)", 32, "made by one region"),
    "depthwise": (
        "a = Conv<group=16, pads=[1,1,1,1]>(x, wd) b = Conv(x, w16) y = Concat<axis=1>(a, b)",
        32,
        "makes 'a' without gaps",
    ),
    "read by what knows no gaps": (
        "a = Conv(x, w16) b = Conv(x, w16) c = Concat<axis=1>(a, b) d = Conv(c, w32) "
        "e = Softmax<axis=1>(a) y = Mul(d, e)",
        16,
        "reads 'a' without gaps",
    ),
    "part of another": (
        "a = Conv(x, w16) b = Conv(x, w16) c = Conv(x, w16) d = Concat<axis=1>(a, b) "
        "e = Concat<axis=1>(b, c) f = Conv(d, w32) g = Conv(e, w32) y = Concat<axis=1>(f, g)",
        32,
        "is part of another already",
    ),
}


def joined(text: str, channels: int, *, is_float: bool):
    model = net(HEAD.format(channels=channels) + text.replace(") ", ")\n") + "\n}", weights(SHAPES), opset=21)
    codes = None if is_float else quantized(model, CUDA, {"x": samples(1, 16, 4, 4)})
    graph = model.graph if codes is None else codes.graph
    regions = partition(graph)
    forms = choose_forms(graph.graph, regions, codes)
    frame = make_frame(graph, regions, forms, codes, "float16")
    values = {x.name: x for x in (*graph.graph.inputs, *(y for node in graph.graph for y in node.outputs))}
    facts = {}
    for item in frame.items:
        for buffer in (*item.inputs, *item.outputs):
            value = values[buffer.partition("#")[0]]
            shape = tuple(int(size) for size in value.shape)
            dtype = "int8" if buffer.endswith("#int8") else "float16"
            facts[buffer] = TensorFacts(dtype, shape, dense_strides(shape, channels_last=True))
    return join_in_place(frame, facts, 90)


@pytest.mark.parametrize("name", CASES)
def test_which(name: str):
    text, channels, reason = CASES[name]
    found = joined(text, channels, is_float="Softmax" in text)
    assert bool(found.mismatches) == bool(reason)
    assert all(reason in row.reason for row in found.mismatches), found.mismatches
