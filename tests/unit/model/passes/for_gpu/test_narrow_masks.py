# SPDX-License-Identifier: Apache-2.0
"""Masks that are repeated for every query stay narrow, and what is repeated for another reader does not."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from quantrt.model.passes.for_gpu.narrow_masks import narrow_masks
from tests.unit.model.check_pass import model_of, op_types, run

B, H, S = 2, 3, 5
SIZES = np.array([B, 1, S, S], np.int64)
TRUES = np.ones((1, 1, S, 1), np.bool_)
REST = "zero = Constant<value_float = 0.0>() low = Constant<value_float = -1e9>()"


def made(body, *, inputs=f"bool[{B},1,1,{S}] m, float[{B},{H},{S},{S}] x", outputs="float[...] y", **weights):
    model = model_of(body, inputs=inputs, outputs=outputs, weights=weights)
    return ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(model), data_prop=True))


def narrowed(model, rng, *, changes):
    """The graph after the pass, which changes no output by a bit."""
    feeds = {"m": rng.random((B, 1, 1, S)) < 0.6, "x": rng.standard_normal((B, H, S, S)).astype(np.float32)}
    want = run(model, feeds)
    assert narrow_masks(model) == changes
    for one, other in zip(run(model, feeds), want, strict=True):
        np.testing.assert_array_equal(one, other)
    return model


def sizes_of(model):
    return {node.op_type: tuple(node.outputs[0].shape.dims) for node in model.graph}


@pytest.mark.parametrize(
    ("repeat", "constant"),
    [
        ("wide = Expand(m, c)", SIZES),
        ("wide = And(m, c)", TRUES),
        ("wide = And(c, m)", TRUES),
        ("wide = Or(m, c)", ~TRUES),
    ],
)
def test_a_mask_for_all_queries_is_added_to_the_scores_as_it_is(repeat, constant, rng):
    body = f"{REST} {repeat} part = Where(wide, zero, low) z = Add(x, part) y = Softmax<axis = -1>(z)"
    graph = narrowed(made(body, c=constant), rng, changes=1)
    assert "Expand" not in op_types(graph)
    assert sizes_of(graph)["Where"] == (B, 1, 1, S)
    assert sizes_of(graph)["Add"] == (B, H, S, S)


def test_a_value_that_is_read_twice_on_its_way_is_narrow_for_both(rng):
    """transformers 4 chooses among the mask and a number, by the mask."""
    body = (
        f"{REST} one = Constant<value_float = 1.0>() f = Cast<to = 1>(m) wide = Expand(f, c)"
        " off = Sub(one, wide) is_off = Cast<to = 9>(off) part = Where(is_off, low, off) y = Add(x, part)"
    )
    graph = narrowed(made(body, c=SIZES), rng, changes=1)
    assert sizes_of(graph)["Where"] == (B, 1, 1, S)


@pytest.mark.parametrize(
    "rest",
    [
        "part = Where(wide, zero, low) y = Softmax<axis = -1>(part)",
        "part = Where(wide, zero, low) y = Identity(part)",
        "f = Cast<to = 1>(wide) y = ReduceSum<keepdims = 0>(f)",
        "f = Cast<to = 1>(wide) y = Transpose<perm = [0, 1, 3, 2]>(f)",
    ],
)
def test_what_another_reader_wants_wide_stays(rest, rng):
    narrowed(made(f"{REST} wide = Expand(m, c) {rest}", c=SIZES), rng, changes=0)


def test_the_callers_result_stays_wide(rng):
    body = "wide = Expand(m, c) f = Cast<to = 1>(wide) y = Add(x, f)"
    narrowed(made(body, outputs="float[...] y, bool[...] wide", c=SIZES), rng, changes=0)


@pytest.mark.parametrize("constant", [TRUES & (np.arange(S) != 2)[:, None], np.zeros_like(TRUES)])
def test_a_constant_that_hides_something_stays(constant, rng):
    body = f"{REST} wide = And(m, c) part = Where(wide, zero, low) y = Add(x, part)"
    narrowed(made(body, c=constant), rng, changes=0)


def test_two_masks_that_meet_only_each_other_are_not_both_made_narrow(rng):
    """After the first is narrow, the second is what makes their sum wide."""
    body = (
        "f = Cast<to = 1>(m) one = Expand(f, c) other = Expand(f, c) both = Add(one, other)"
        " y = Softmax<axis = 2>(both)"
    )
    graph = narrowed(made(body, c=SIZES), rng, changes=1)
    assert sizes_of(graph)["Add"] == (B, 1, S, S)
