# SPDX-License-Identifier: Apache-2.0
"""Reshapes whose sizes are computed get constants where they can, and compute the same at every batch."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from quantrt.ir.edit import constant_of
from quantrt.model.passes.for_gpu.settle_reshapes import settle_reshapes
from tests.unit.model.check_pass import check_pass, named_model_of, op_types, run


def made(body: str, *, inputs: str, weights: dict[str, np.ndarray] | None = None) -> ir.Model:
    """The model with inferred shapes, as it is when it was loaded."""
    return named_model_of(body, inputs=inputs, outputs="float[...] y", weights=weights or {})


GROUPS = {"groups": np.array([0, 2, -1])}

GROUP_NORM = """
    image = Add(x, shift)
    shape = Shape(image)
    flat = Reshape(image, groups)
    wide = Softmax(flat)
    y = Reshape(wide, shape)
"""


def target(model: ir.Model, place: int) -> list[int] | None:
    reshapes = [node for node in model.graph if node.op_type == "Reshape"]
    array = constant_of(reshapes[place].inputs[1])
    return None if array is None else array.tolist()


@pytest.mark.parametrize("batch", [1, 3])
def test_a_shape_that_is_known_but_for_the_batch(batch: int, rng: np.random.Generator):
    model = made(GROUP_NORM, inputs="float[n,4,6,5] x, float[n,4,1,1] shift", weights=GROUPS)
    feeds: dict[str, Any] = {
        "x": rng.standard_normal((batch, 4, 6, 5)).astype(np.float32),
        "shift": rng.standard_normal((batch, 4, 1, 1)).astype(np.float32),
    }
    want = run(model, feeds)
    assert settle_reshapes(model) == 1
    assert op_types(model) == ["Add", "Reshape", "Softmax", "Reshape"]
    assert target(model, -1) == [-1, 4, 6, 5]
    np.testing.assert_array_equal(run(model, feeds)[0], want[0])


def test_equal_sizes_are_one_constant(rng: np.random.Generator):
    body = "s = Shape(x)  a = Relu(x)  b = Reshape(a, s)  c = Reshape(x, s)  y = Add(b, c)"
    model = made(body, inputs="float[n,4] x")
    assert settle_reshapes(model) == 2
    assert len(model.graph.initializers) == 1


@pytest.mark.parametrize(
    "inputs", ["float[n,4,h,5] x, float[n,4,1,1] shift", "float[...] x, float[4,1,1] shift"]
)
def test_with_two_sizes_unknown_nothing_changes(inputs: str):
    model = made(GROUP_NORM, inputs=inputs, weights=GROUPS)
    assert settle_reshapes(model) == 0
    assert "Shape" in op_types(model)


def test_constants_stay(rng: np.random.Generator):
    model = made("y = Reshape(x, to)", inputs="float[n,4] x", weights={"to": np.array([0, 2, 2])})
    check_pass(settle_reshapes, model, rng, changes=0, rtol=0, atol=0)
    assert target(model, 0) == [0, 2, 2]


def test_a_shape_that_others_read_stays():
    body = "s = Shape(x)  a = Reshape(x, s)  f = Cast<to=1>(s)  m = ReduceMax(f)  y = Add(a, m)"
    model = made(body, inputs="float[n,4] x")
    assert settle_reshapes(model) == 1
    assert "Shape" in op_types(model)
