# SPDX-License-Identifier: Apache-2.0
"""Per-channel arithmetic after a convolution folds into its weights."""

import numpy as np
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.passes.fold.fold_channel_affine import fold_channel_affine
from tests.unit.model.check_pass import check_pass, model_of, op_types

FOLDED = {
    "multiplied": "y = Mul(c, p)",
    "multiplied from the left": "y = Mul(p, c)",
    "divided": "y = Div(c, p)",
    "added": "y = Add(p, c)",
    "subtracted": "y = Sub(c, p)",
}


def conv_weights(rng, shape):
    return {
        "w": rng.standard_normal((5, 4, 3, 3)).astype(np.float32),
        "p": rng.uniform(0.5, 2, shape).astype(np.float32),
    }


@pytest.mark.parametrize("shape", [(5, 1, 1), (1, 5, 1, 1), (), (1,), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("case", FOLDED)
def test_one_number_per_channel(case, shape, rng):
    model = model_of(f"[conv] c = Conv(x, w) [after] {FOLDED[case]}", weights=conv_weights(rng, shape))
    folded = check_pass(fold_channel_affine, model, rng, changes=1, rtol=1e-5, atol=1e-5)
    assert op_types(folded) == ["Conv"]
    assert sources_of(folded.graph[0]) == ("conv", "after")


def test_a_batch_norm_in_arithmetic_folds_whole(rng):
    channel = {name: rng.uniform(0.5, 2, (5, 1, 1)).astype(np.float32) for name in ("m", "d", "g", "o")}
    model = model_of(
        "c = Conv(x, w) a = Sub(c, m) e = Div(a, d) f = Mul(e, g) y = Add(f, o)",
        weights=conv_weights(rng, ()) | channel,
    )
    folded = check_pass(fold_channel_affine, model, rng, changes=4, rtol=1e-5, atol=1e-5)
    assert op_types(folded) == ["Conv"]


NOT_FOLDED = {
    "the image axis": ("c = Conv(x, w) y = Mul(c, p)", (4,)),
    "a constant over a constant": ("c = Conv(x, w) y = Div(p, c)", (5, 1, 1)),
    "a constant minus": ("c = Conv(x, w) y = Sub(p, c)", (5, 1, 1)),
    "an operand of higher rank": ("c = Conv(x, w) y = Mul(c, p)", (1, 1, 5, 1, 1)),
    "the batch axis": ("c = Conv(x, w) y = Mul(c, p)", (2, 1, 1, 1)),
    "two readers": ("c = Conv(x, w) r = Mul(c, p) y = Add(r, c)", (5, 1, 1)),
    "both operands from one": ("c = Conv(x, w) y = Mul(c, c)", ()),
}


@pytest.mark.parametrize("case", NOT_FOLDED)
def test_other_arithmetic_stays(case, rng):
    body, shape = NOT_FOLDED[case]
    model = model_of(body, weights=conv_weights(rng, shape))
    check_pass(fold_channel_affine, model, rng, changes=0, rtol=0, atol=0)


def test_a_constant_that_widens_the_channels_stays(rng):
    weights = {"w": np.ones((1, 4, 3, 3), np.float32), "p": np.ones((5, 1, 1), np.float32)}
    for operator in ("Add", "Mul"):
        model = model_of(f"c = Conv(x, w) y = {operator}(c, p)", weights=weights)
        check_pass(fold_channel_affine, model, rng, changes=0, rtol=0, atol=0)


def test_division_by_zero_stays(rng):
    model = model_of("c = Conv(x, w) y = Div(c, p)", weights=conv_weights(rng, ()) | {"p": np.float32(0)})
    check_pass(fold_channel_affine, model, rng, changes=0, rtol=0, atol=0)


def test_input_normalization_stays(rng):
    weights = conv_weights(rng, ()) | {"mean": np.full((1, 4, 1, 1), 0.4, np.float32)}
    model = model_of("n = Sub(x, mean) d = Div(n, p) y = Conv(d, w)", weights=weights)
    check_pass(fold_channel_affine, model, rng, changes=0, rtol=0, atol=0)
