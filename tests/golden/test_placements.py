# SPDX-License-Identifier: Apache-2.0
"""Which edges each target quantizes in typical networks, as text: a change of a rule shows as a diff.

`pytest tests/golden --accept` writes the files anew.
"""

from pathlib import Path

import numpy as np
import pytest

from quantrt.model.load import load_model
from quantrt.model.model import Model
from quantrt.quantize.placement.placement import place
from quantrt.quantize.quantized_model import Placement
from quantrt.quantize.target import Target
from quantrt.quantize.targets import TARGETS
from tests.nets import net, resnet, weights

FOLDER = Path(__file__).parent / "placements"

MAP = {"w": (8, 8, 3, 3), "v": (8, 8, 3, 3), "u": (8, 16, 1, 1)}


def squeeze_excite() -> Model:
    """A depthwise block with hard activations and a gate, as in MobileNetV3."""
    text = """net (float[N,8,6,6] x) => (float[N,8,6,6] y) {
    e = Conv(x, expand, eb) g = HardSwish(e) d = Conv<group=16, pads=[1,1,1,1]>(g, depth, db) h = HardSwish(d)
    p = GlobalAveragePool(h) q = Conv(p, down) r = Relu(q) s = Conv(r, up) t = HardSigmoid(s)
    m = Mul(h, t) o = Conv(m, project, pb) y = Add(o, x) }"""
    shapes = {
        "expand": (16, 8, 1, 1),
        "eb": (16,),
        "depth": (16, 1, 3, 3),
        "db": (16,),
        "down": (4, 16, 1, 1),
        "up": (16, 4, 1, 1),
        "project": (8, 16, 1, 1),
        "pb": (8,),
    }
    return net(text, weights(shapes))


def inception() -> Model:
    """Two branches, a concatenation, pools and a transposed convolution."""
    text = """net (float[N,8,6,6] x) => (float[N,8,6,6] y) {
    a = Conv<pads=[1,1,1,1]>(x, w) ar = Relu(a) b = Conv<pads=[1,1,1,1]>(x, v) br = Relu(b)
    c = Concat<axis=1>(ar, br) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c) d = Conv(p, u)
    q = AveragePool<kernel_shape=[1,1]>(d) y = ConvTranspose<kernel_shape=[2,2], strides=[2,2]>(q, t) }"""
    return net(text, weights(MAP | {"t": (8, 8, 2, 2)}))


def transformer() -> Model:
    """One attention head and a feed-forward part, with a LayerNormalization."""
    text = """net (float[N,4,8] x) => (float[N,4,8] y) {
    l = LayerNormalization(x, ls, lb) q = MatMul(l, wq) qb = Add(q, bq) k = MatMul(l, wk) v = MatMul(l, wv)
    kt = Transpose<perm=[0,2,1]>(k) a = MatMul(qb, kt) s = Mul(a, scale) p = Softmax<axis=-1>(s)
    z = MatMul(p, v) o = MatMul(z, wo) r = Add(o, x)
    f = MatMul(r, w1) fb = Add(f, b1) g = Relu(fb) h = MatMul(g, w2) y = Add(h, r) }"""
    shapes = dict.fromkeys(("wq", "wk", "wv", "wo", "w1", "w2"), (8, 8))
    shapes |= {"bq": (8,), "b1": (8,), "ls": (8,), "lb": (8,)}
    return net(text, weights(shapes) | {"scale": np.array([0.35], np.float32)})


def digits() -> Model:
    return load_model(Path(__file__).parents[2] / "demo" / "digits_resnet.onnx")


NETWORKS = {
    "digits": digits,
    "inception": inception,
    "resnet": resnet,
    "squeeze_excite": squeeze_excite,
    "transformer": transformer,
}


def text_of(placement: Placement) -> str:
    """One line per node, its quantized edges and weights below it; then groups and outputs."""
    lines = []
    for row in placement.decisions:
        lines.append(f"{row.node}: {'int8' if row.is_int8 else 'float'}: {row.reason}")
        for (node, index), value in sorted(placement.uses.items()):
            if node == row.node:
                grid = " symmetric" if value in placement.symmetric else ""
                lines.append(f"    input {index}: {value}{grid}")
        for (node, index), axis in sorted(placement.weights.items()):
            if node == row.node:
                lines.append(f"    weight {index}: {'per tensor' if axis is None else f'axis {axis}'}")
        lines += [f"    bias {i}: int32" for (node, i) in sorted(placement.biases) if node == row.node]
    lines += [f"one grid: {', '.join(sorted(group))}" for group in sorted(placement.groups, key=sorted)]
    lines += [f"quantized output: {name}" for name in sorted(placement.outputs)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("network", NETWORKS)
def test_placement(network: str, target: Target, request: pytest.FixtureRequest):
    path = FOLDER / f"{network}.{target.name}.txt"
    got = text_of(place(NETWORKS[network]().graph, target))
    if request.config.getoption("--accept"):
        path.write_text(got, encoding="utf-8")
    assert path.exists(), f"no {path.name}; `pytest tests/golden --accept` writes it"
    assert got == path.read_text(encoding="utf-8")


def test_no_file_is_left_over():
    wanted = {f"{network}.{target.name}.txt" for network in NETWORKS for target in TARGETS}
    assert {path.name for path in FOLDER.iterdir()} == wanted
