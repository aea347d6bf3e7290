# SPDX-License-Identifier: Apache-2.0
"""Regions of graphs that nobody designed compute what ONNX Runtime does, in an order that can be run."""

import numpy as np
import pytest

from tests.unit.model.check_pass import random_feeds
from tests.unit.regions.check_partition import check_values, partitioned

FLOAT32 = 1e-5  # some thirty operations deep; every one keeps its result near 1

UNARY = (
    "Relu({})",
    "Tanh({})",
    "Sigmoid({})",
    "Softmax<axis=-1>({})",
    "LayerNormalization<axis=-1>({}, g)",
    "Neg({})",
)
ROWS = ("ReduceMean<axes=[-1]>({})", "ReduceMax<axes=[-1]>({})")
OTHER = ("MaxPool<kernel_shape=[3], strides=[1], pads=[1,1]>({})", "MatMul({}, w)", "MatMul({}, v)")
BINARY = ("Add({}, {})", "Mul({}, {})", "Max({}, {})", "Sub({}, {})")


def random_body(rng: np.random.Generator, count: int) -> tuple[str, int]:
    """Nodes over values of shape [B,3,6], a few of [B,3,1]; how many there are."""
    full, small, lines = ["x", "z"], [], []
    for number in range(count):
        name = f"t{number}"
        kind = rng.choice(["unary", "binary", "rows", "other", "mixed"], p=[0.25, 0.35, 0.1, 0.2, 0.1])
        pick = [full[-1 - int(rng.integers(0, min(5, len(full))))] for _ in range(2)]
        if kind == "mixed" and small:
            lines.append(f"{name} = {rng.choice(BINARY).format(pick[0], rng.choice(small))}")
        elif kind == "rows":
            lines.append(f"{name} = {rng.choice(ROWS).format(pick[0])}")
            small.append(name)
            continue
        elif kind in ("binary", "mixed"):
            lines.append(f"u{number} = {rng.choice(BINARY).format(*pick)} {name} = Tanh(u{number})")
        else:
            lines.append(f"{name} = {rng.choice(UNARY if kind == 'unary' else OTHER).format(pick[0])}")
        full.append(name)
    return " ".join(lines), count


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs(seed, rng):
    generator = np.random.default_rng(seed)
    body, count = random_body(generator, 6 + seed)
    last = [f"t{number}" for number in range(count) if f"t{number} = " in body]
    chosen = dict.fromkeys([last[-1], *generator.choice(last, size=2).tolist()])
    weights = {
        "w": rng.standard_normal((6, 6)).astype(np.float32) / 3,
        "v": rng.standard_normal((6, 6)).astype(np.float32) / 3,
        "g": rng.standard_normal(6).astype(np.float32),
    }
    found = partitioned(
        body,
        inputs="float[B,3,6] x, float[B,3,6] z",
        outputs=", ".join(f"float[...] {name}" for name in chosen),
        weights={name: array for name, array in weights.items() if f", {name})" in body},
    )
    check_values(found, random_feeds(found.graph, rng), tolerance=FLOAT32)
