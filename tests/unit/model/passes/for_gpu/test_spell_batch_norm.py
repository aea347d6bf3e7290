# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization as a product and a sum."""

import numpy as np
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.passes.for_gpu.spell_batch_norm import spell_batch_norm
from tests.unit.model.check_pass import check_pass, model_of, op_types

FLOAT32 = 3e-6  # factor and shift are rounded once


def weights_of(rng, count):
    weights = {name: rng.standard_normal(count).astype(np.float32) for name in ("g", "b", "m")}
    return {**weights, "v": rng.uniform(0.5, 2, count).astype(np.float32)}


@pytest.mark.parametrize("shape", ["2,4", "2,4,5", "N,4,6,6", "2,4,3,3,3"])
def test_behind_a_concat_and_before_a_relu(shape, rng):
    """Networks whose normalizations no convolution precedes; [N, C] has its channels in the last axis."""
    model = model_of(
        "n = BatchNormalization<epsilon=0.01>(x, g, b, m, v) y = Relu(n)",
        inputs=f"float[{shape}] x",
        weights=weights_of(rng, 4),
    )
    for node in model.graph:
        node.name = node.op_type
    spelled = check_pass(spell_batch_norm, model, rng, changes=1, rtol=FLOAT32, atol=FLOAT32)
    assert op_types(spelled) == ["Mul", "Add", "Relu"]
    product, total, _ = spelled.graph
    assert sources_of(product) == sources_of(total) == ("BatchNormalization",)
    assert total.name == "BatchNormalization"
    assert not {"g", "b", "m", "v"} & set(spelled.graph.initializers)


def test_a_result_that_is_the_callers(rng):
    model = model_of("y = BatchNormalization(x, g, b, m, v)", weights=weights_of(rng, 4))
    check_pass(spell_batch_norm, model, rng, changes=1, rtol=FLOAT32, atol=FLOAT32)


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("y = BatchNormalization(x, g, b, m, z)", "float[2,4,6,6] x, float[4] z"),
        ("y = Relu(x)", "float[2,4,6,6] x"),
    ],
)
def test_others_stay(body, inputs, rng):
    weights = {name: array for name, array in weights_of(rng, 4).items() if f" {name}," in body}
    model = model_of(body, inputs=inputs, weights=weights)
    assert spell_batch_norm(model) == 0


def test_an_infinite_factor_is_not_written(rng):
    weights = {**weights_of(rng, 4), "v": np.zeros(4, np.float32)}
    model = model_of("y = BatchNormalization<epsilon=0.0>(x, g, b, m, v)", weights=weights)
    assert spell_batch_norm(model) == 0
