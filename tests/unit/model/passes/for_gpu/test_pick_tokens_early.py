# SPDX-License-Identifier: Apache-2.0
"""One token that is read alone is computed alone, back to what mixes tokens; nothing else moves."""

import numpy as np
import pytest

from quantrt.ir.shapes import infer_shapes
from quantrt.model.passes.for_gpu.pick_tokens_early import pick_tokens_early
from quantrt.model.passes.spell.lift_constants import lift_constants
from tests.unit.model.check_pass import check_pass, model_of, op_types

S, C, F = 5, 8, 12
FIRST, LAST = (
    "from = Constant<value_ints = [0]>() to = Constant<value_ints = [1]>()",
    ("from = Constant<value_ints = [-1]>() to = Constant<value_ints = [9223372036854775807]>()"),
)
AXIS = " axis = Constant<value_ints = [1]>() "
BLOCK = (
    "mixed = MatMul(turned, x) a = MatMul(mixed, w) b = Add(a, bias) sum = Add(x, b)"
    " normed = LayerNormalization<axis = -1>(sum, scale, bias)"
    " h = MatMul(normed, wide) half = Erf(h) gelu = Mul(h, half) down = MatMul(gelu, narrow)"
    " total = Add(sum, down) "
)
"""What stands behind attention in a transformer, with a product of two activations in its place."""

PICK = "token = Slice(total, from, to, axis) y = Squeeze(token, axis)"


def made(rng, body, *, outputs="float[batch,8] y"):
    shapes = {"w": (C, C), "bias": (C,), "scale": (C,), "wide": (C, F), "narrow": (F, C)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    used = {name: array for name, array in weights.items() if name in body}
    inputs = f"float[batch,{S},{C}] x, float[batch,{S},{S}] turned"
    model = model_of(body, inputs=inputs, outputs=outputs, weights=used)
    lift_constants(model)
    infer_shapes(model)
    return model


def shape_of(model, name):
    return [list(v.shape.dims)[1:] for node in model.graph for v in node.outputs if v.name == name]


@pytest.mark.parametrize("place", [FIRST, LAST], ids=["first", "last"])
def test_behind_attention_one_token_is_left(rng, place):
    model = made(rng, place + AXIS + BLOCK + PICK)
    # Sums of float32 in another order; measured 2e-6.
    changed = check_pass(pick_tokens_early, model, rng, changes=9, rtol=1e-4, atol=1e-5)
    assert op_types(changed)[:3] == ["MatMul", "Slice", "MatMul"]
    assert op_types(changed).count("Slice") == 2, "of what attention makes, and of the residual"
    assert shape_of(changed, "mixed") == [[S, C]]
    assert [shape_of(changed, name) for name in ("sum", "normed", "h", "total")] == [
        [[1, C]],
        [[1, C]],
        [[1, F]],
        [[1, C]],
    ]


def test_an_output_keeps_its_name_and_its_one_token(rng):
    model = made(
        rng, FIRST + AXIS + BLOCK + "y = Slice(total, from, to, axis)", outputs=f"float[batch,1,{C}] y"
    )
    changed = check_pass(pick_tokens_early, model, rng, changes=9, rtol=1e-4, atol=1e-5)
    assert not shape_of(changed, "total"), "it is called y now"


def test_what_is_read_whole_is_computed_whole(rng):
    body = FIRST + AXIS + BLOCK + PICK + " all = Relu(sum)"
    model = made(rng, body, outputs=f"float[batch,{C}] y, float[batch,{S},{C}] all")
    changed = check_pass(pick_tokens_early, model, rng, changes=6, rtol=1e-4, atol=1e-5)
    assert shape_of(changed, "sum") == [[S, C]]
    assert shape_of(changed, "normed") == [[1, C]]


def test_two_tokens_of_one_value_stay(rng):
    other = (
        " next = Constant<value_ints = [2]>() second = Slice(total, to, next, axis) z = Squeeze(second, axis)"
    )
    model = made(rng, FIRST + AXIS + BLOCK + PICK + other, outputs=f"float[batch,{C}] y, float[batch,{C}] z")
    check_pass(pick_tokens_early, model, rng, changes=0, rtol=0, atol=0)


def test_a_graph_output_is_whole(rng):
    model = made(rng, FIRST + AXIS + BLOCK + PICK, outputs=f"float[batch,{C}] y, float[batch,{S},{C}] total")
    check_pass(pick_tokens_early, model, rng, changes=0, rtol=0, atol=0)


@pytest.mark.parametrize(
    "body",
    [
        "total = MatMul(turned, x) ",
        "mixed = MatMul(turned, x) half = Erf(mixed) total = Mul(mixed, half) ",
        "total = Softmax<axis = 1>(x) ",
        "axes = Constant<value_ints = [1]>() mean = ReduceMean<axes = [1]>(x) total = Sub(x, mean) ",
    ],
    ids=["product of activations", "its epilogue", "softmax of tokens", "mean of tokens"],
)
def test_nothing_moves_over_what_mixes_tokens_or_belongs_to_it(rng, body):
    model = made(rng, FIRST + AXIS + body + PICK)
    check_pass(pick_tokens_early, model, rng, changes=0, rtol=0, atol=0)


def test_channels_and_samples_are_no_tokens(rng):
    for axis in (0, 2):
        numbers = FIRST + f" axis = Constant<value_ints = [{axis}]>() "
        model = made(rng, numbers + BLOCK + "y = Slice(total, from, to, axis)", outputs="float[...] y")
        check_pass(pick_tokens_early, model, rng, changes=0, rtol=0, atol=0)


def test_a_norm_spelled_in_nodes(rng):
    norm = (
        "mean = ReduceMean<axes = [-1]>(x) less = Sub(x, mean) two = Constant<value_float = 2.0>()"
        " square = Pow(less, two) variance = ReduceMean<axes = [-1]>(square) root = Sqrt(variance)"
        " total = Div(less, root) "
    )
    changed = check_pass(
        pick_tokens_early, made(rng, FIRST + AXIS + norm + PICK), rng, changes=6, rtol=1e-6, atol=0
    )
    assert op_types(changed)[0] == "Slice"
