# SPDX-License-Identifier: Apache-2.0
"""Multiply-adds by node, from shapes."""

import numpy as np
import pytest

from quantrt.report.built.work_shares import work_shares
from tests.nets import net, resnet

NET = """net (float[N,4,8,8] x) => (float[N,10] y) {
    [conv] a = Conv <strides = [2,2], pads = [1,1,1,1]> (x, wide)
    [depth] b = Conv <group = 6, pads = [1,1,1,1]> (a, deep)
    [up] c = ConvTranspose <strides = [2,2]> (b, up)
    [mean] d = GlobalAveragePool (c)
    [flat] e = Flatten (d)
    [fc] y = Gemm <transB = 1> (e, w)
}"""
COUNTS = {"conv": 6 * 4 * 9 * 16, "depth": 6 * 9 * 16, "up": 6 * 5 * 4 * 16, "fc": 10 * 5}


def shares_of(text: str, **weights: tuple[int, ...]) -> dict[str, float]:
    return work_shares(net(text, {name: np.ones(shape, np.float32) for name, shape in weights.items()}))


def test_every_product_is_counted_by_its_shape():
    found = shares_of(NET, wide=(6, 4, 3, 3), deep=(6, 1, 3, 3), up=(6, 5, 2, 2), w=(10, 5))
    total = sum(COUNTS.values())
    assert found == {name: pytest.approx(count / total) for name, count in COUNTS.items()}


def test_products_of_activations_and_of_stacks_of_rows():
    text = """net (float[N,3,7,16] q, float[N,3,16,7] k) => (float[N,3,7,8] y) {
        [scores] s = MatMul (q, k)
        [mixed] y = MatMul (s, w)
    }"""
    scores, mixed = 3 * 7 * 7 * 16, 3 * 7 * 8 * 7
    assert shares_of(text, w=(7, 8)) == {
        "scores": pytest.approx(scores / (scores + mixed)),
        "mixed": pytest.approx(mixed / (scores + mixed)),
    }


def test_they_add_up_to_one():
    assert sum(work_shares(resnet()).values()) == pytest.approx(1.0)
