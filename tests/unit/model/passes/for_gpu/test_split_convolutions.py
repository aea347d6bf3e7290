# SPDX-License-Identifier: Apache-2.0
"""Parts of a convolution's channels become convolutions of their own where one is convolved again."""

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.file.name_nodes import name_nodes
from quantrt.model.for_gpu import for_gpu
from quantrt.model.passes.for_gpu.split_convolutions import split_convolutions
from tests.nets import net, run_ort, samples
from tests.unit.model.check_pass import check_pass, model_of, op_types, proto_of

FLOAT32 = 1e-5
TAIL = "t = Conv<pads=[1,1,1,1]>(b, v) y = Concat<axis=1>(a, b, t)"
ACTIVATIONS = {
    "none": "r = Conv(x, w, c)",
    "Relu": "k = Conv(x, w, c) r = Relu(k)",
    "SiLU": "k = Conv(x, w, c) s = Sigmoid(k) r = Mul(k, s)",
    "Mish": "k = Conv(x, w, c) p = Softplus(k) h = Tanh(p) r = Mul(h, k)",
    "two": "k = Conv(x, w, c) h = HardSwish(k) r = Relu(h)",
    "without a bias": "r = Conv(x, w)",
}


def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"w": (64, 4, 1, 1), "c": (64,), "v": (8, 32, 3, 3), "u": (8, 16, 3, 3), "z": (8, 64, 1, 1)}
    found = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**found, "uneven": np.array([48, 16], np.int64), "odd": np.array([60, 4], np.int64)}


def graph_of(body: str, rng: np.random.Generator, opset: int = 18):
    used = {name: array for name, array in arrays(rng).items() if f", {name}" in body}
    return model_of(body, weights=used, opset=opset)


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def test_halves_are_two_convolutions(activation: str, rng: np.random.Generator):
    graph = graph_of(f"{activation} a, b = Split<axis=1, num_outputs=2>(r) {TAIL}", rng)
    changed = check_pass(split_convolutions, graph, rng, changes=1, rtol=FLOAT32, atol=FLOAT32)
    counts = Counter(op_types(changed))
    assert counts["Conv"] == 3 and not counts["Split"]
    assert "w" not in changed.graph.initializers


def test_parts_of_other_sizes(rng: np.random.Generator):
    body = "r = Conv(x, w, c) a, b = Split<axis=-3>(r, uneven) t = Conv<pads=[1,1,1,1]>(b, u)"
    graph = graph_of(f"{body} y = Concat<axis=1>(a, t)", rng)
    changed = check_pass(split_convolutions, graph, rng, changes=1, rtol=FLOAT32, atol=FLOAT32)
    assert op_types(changed) == ["Conv", "Conv", "Conv", "Concat"]


STAY = {
    "no part is convolved": "r = Conv(x, w) a, b = Split<axis=1, num_outputs=2>(r) y = Add(a, b)",
    "the whole is read too": f"r = Conv(x, w) a, b = Split<axis=1, num_outputs=2>(r) q = Conv(r, z) {TAIL}",
    "before its activation": f"k = Conv(x, w) r = Relu(k) q = Conv(k, z) "
    f"a, b = Split<axis=1, num_outputs=2>(r) {TAIL}",
    "other axes": "r = Conv(x, w) a, b = Split<axis=2, num_outputs=2>(r) t = Conv(b, z) y = Relu(a)",
    "few channels": "r = Conv(x, w) a, b = Split<axis=1>(r, odd) t = Conv(a, o) y = Relu(b)",
    "nothing is convolved": f"r = Exp(x) a, b = Split<axis=1, num_outputs=2>(r) {TAIL.replace('v', 'q')}",
}


@pytest.mark.parametrize("body", STAY.values(), ids=STAY.keys())
def test_what_is_something_else_stays(body: str, rng: np.random.Generator):
    extra = {"o": np.ones((8, 60, 1, 1), np.float32), "q": np.ones((8, 2, 3, 3), np.float32)}
    used = {name: array for name, array in {**arrays(rng), **extra}.items() if f", {name})" in body}
    assert split_convolutions(model_of(body, weights=used, opset=18)) == 0


def test_the_nodes_go_by_the_names_that_they_had(rng: np.random.Generator):
    body = f"{ACTIVATIONS['SiLU']} a, b = Split<axis=1, num_outputs=2>(r) {TAIL}"
    used = {name: array for name, array in arrays(rng).items() if f", {name}" in body}
    proto = proto_of(body, weights=used, opset=18)
    name_nodes(proto.graph)
    graph = ir.from_proto(proto)
    split_convolutions(graph)
    sources = Counter(name for node in graph.graph for name in sources_of(node))
    assert sources["Conv_0"] == sources["Sigmoid_1"] == sources["Mul_2"] == sources["Split_3"] == 2
    assert len({node.name for node in graph.graph}) == len(list(graph.graph))


def test_a_model_for_a_gpu_computes_the_same(rng: np.random.Generator):
    text = f"net (float[2,4,6,6] x) => (float[2,72,6,6] y) {{ {ACTIVATIONS['SiLU']} "
    text += f"a, b = Split<axis=1, num_outputs=2>(r) {TAIL} }}"
    model = net(text, {name: x for name, x in arrays(rng).items() if name in "wcv"}, opset=18)
    x = {"x": samples(2, 4, 6, 6)}
    changed = for_gpu(model)
    assert "Split" not in {node.op_type for node in changed.graph.graph}
    (want,), (got,) = run_ort(model.graph, x), run_ort(changed.graph, x)
    assert np.abs(want - got).max() <= FLOAT32 * np.abs(want).max()
