# SPDX-License-Identifier: Apache-2.0
"""What is turned there and back again is read as it was."""

import numpy as np
import pytest

from quantrt.ir.clone import clone
from quantrt.model.passes.cancel_transposes import cancel_transposes
from tests.unit.model.check_pass import model_of, random_feeds, run


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("h = Transpose<perm=[0,2,3,1]>(x) b = Transpose<perm=[0,3,1,2]>(h) y = Relu(b)", 1),
        ("h = Transpose<perm=[0,2,3,1]>(x) b = Transpose<perm=[0,3,1,2]>(h) r = Relu(b) y = Add(r, b)", 1),
        ("h = Transpose<perm=[0,2,3,1]>(x) b = Transpose<perm=[0,2,3,1]>(h) y = Relu(b)", 0),
        ("h = Transpose<perm=[0,2,3,1]>(x) y = Transpose<perm=[0,3,1,2]>(h)", 0),
        ("h = Transpose(x) b = Transpose(h) y = Relu(b)", 0),
    ],
)
def test_pairs_cancel(body: str, count: int, rng):
    graph = model_of(body)
    feeds = random_feeds(graph, rng)
    cut = clone(graph)
    assert cancel_transposes(cut) == count
    np.testing.assert_array_equal(run(cut, feeds)[0], run(graph, feeds)[0])


def test_others_still_read_what_is_between(rng):
    body = "h = Transpose<perm=[0,2,3,1]>(x) b = Transpose<perm=[0,3,1,2]>(h) y = Relu(b) z = Neg(h)"
    graph = model_of(body, outputs="float[...] y, float[...] z")
    feeds = random_feeds(graph, rng)
    want = run(graph, feeds)
    assert cancel_transposes(graph) == 1
    for got, wanted in zip(run(graph, feeds), want, strict=True):
        np.testing.assert_array_equal(got, wanted)
