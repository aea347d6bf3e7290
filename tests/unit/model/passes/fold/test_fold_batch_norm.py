# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization folds into what stands before it, and only where that is exact."""

import numpy as np
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.passes.fold.fold_batch_norm import fold_batch_norm
from tests.unit.model.check_pass import check_pass, model_of, op_types


def batch_norm(rng, channels):
    """Parameters s, b, m, v of a BatchNormalization, as after training."""
    return {
        "s": rng.uniform(0.5, 2, channels).astype(np.float32),
        "b": rng.standard_normal(channels).astype(np.float32),
        "m": rng.standard_normal(channels).astype(np.float32),
        "v": rng.uniform(0.1, 3, channels).astype(np.float32),
    }


def weights(rng, **shapes):
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


LINEAR = {
    "conv": ("c = Conv<pads=[1,1,1,1]>(x, w)", {"w": (5, 4, 3, 3)}, 5, "float[2,4,6,6] x"),
    "conv with bias": ("c = Conv(x, w, bias)", {"w": (5, 4, 3, 3), "bias": 5}, 5, "float[2,4,6,6] x"),
    "grouped conv": ("c = Conv<group=2>(x, w)", {"w": (6, 2, 3, 3)}, 6, "float[2,4,6,6] x"),
    "conv of one dimension": ("c = Conv(x, w)", {"w": (5, 4, 3)}, 5, "float[2,4,9] x"),
    "transposed": ("c = ConvTranspose(x, w, bias)", {"w": (4, 5, 2, 2), "bias": 5}, 5, "float[2,4,6,6] x"),
    "grouped transposed": ("c = ConvTranspose<group=2>(x, w)", {"w": (4, 3, 2, 2)}, 6, "float[2,4,6,6] x"),
    "gemm": ("c = Gemm(x, w, bias)", {"w": (7, 5), "bias": 5}, 5, "float[3,7] x"),
    "gemm, transposed, scaled": (
        "c = Gemm<transB=1, alpha=0.5, beta=0.25>(x, w, bias)",
        {"w": (5, 7), "bias": (1, 5)},
        5,
        "float[3,7] x",
    ),
    "gemm without bias": ("c = Gemm(x, w)", {"w": (7, 5)}, 5, "float[3,7] x"),
}


@pytest.mark.parametrize("case", LINEAR)
def test_it_becomes_part_of_the_weights(case, rng):
    body, shapes, channels, inputs = LINEAR[case]
    model = model_of(
        f"[linear] {body} [norm] y = BatchNormalization<epsilon=0.01>(c, s, b, m, v)",
        inputs=inputs,
        weights=weights(rng, **shapes) | batch_norm(rng, channels),
    )
    folded = check_pass(fold_batch_norm, model, rng, changes=1, rtol=1e-5, atol=1e-5)
    assert len(op_types(folded)) == 1
    assert sources_of(folded.graph[0]) == ("linear", "norm")


def test_matmul_and_add(rng):
    from quantrt.ir.shapes import infer_shapes

    model = model_of(
        "p = MatMul(x, w) c = Add(bias, p) y = BatchNormalization(c, s, b, m, v)",
        inputs="float[3,7] x",
        weights=weights(rng, w=(7, 5), bias=5) | batch_norm(rng, 5),
    )
    infer_shapes(model)
    folded = check_pass(fold_batch_norm, model, rng, changes=1, rtol=1e-5, atol=1e-5)
    assert op_types(folded) == ["MatMul", "Add"]


def test_a_weight_shared_with_another_node_stays_for_that_node(rng):
    model = model_of(
        "c = Conv(x, w) y = BatchNormalization(c, s, b, m, v) z = Conv(x, w)",
        outputs="float[...] y, float[...] z",
        weights=weights(rng, w=(5, 4, 3, 3)) | batch_norm(rng, 5),
    )
    check_pass(fold_batch_norm, model, rng, changes=1, rtol=1e-5, atol=1e-5)


NOT_FOLDED = {
    "another reader": ("c = Conv(x, w) y = BatchNormalization(c, s, b, m, v) z = Relu(c)", "y, float[...] z"),
    "an output before it": ("c = Conv(x, w) y = BatchNormalization(c, s, b, m, v)", "y, float[...] c"),
    "a computed weight": ("u = Relu(w) c = Conv(x, u) y = BatchNormalization(c, s, b, m, v)", "y"),
    "a computed variance": ("c = Conv(x, w) u = Abs(v) y = BatchNormalization(c, s, b, m, u)", "y"),
    "nothing linear before": ("c = Relu(x) y = BatchNormalization(c, t, t, t, t)", "y"),
}


@pytest.mark.parametrize("case", NOT_FOLDED)
def test_it_stays_after(case, rng):
    body, outputs = NOT_FOLDED[case]
    model = model_of(
        body,
        outputs=f"float[...] {outputs}",
        weights=weights(rng, w=(5, 4, 3, 3)) | batch_norm(rng, 5) | {"t": np.ones(4, np.float32)},
    )
    check_pass(fold_batch_norm, model, rng, changes=0, rtol=0, atol=0)


def test_training_mode_stays(rng):
    model = model_of(
        "c = Conv(x, w) y, rm, rv = BatchNormalization<training_mode=1>(c, s, b, m, v)",
        weights=weights(rng, w=(5, 4, 3, 3)) | batch_norm(rng, 5),
    )
    check_pass(fold_batch_norm, model, rng, changes=0, rtol=0, atol=0)


def test_weights_behind_dequantize_stay(rng):
    model = model_of(
        "w = DequantizeLinear(q, qs) c = Conv(x, w) y = BatchNormalization(c, s, b, m, v)",
        weights={"q": rng.integers(-127, 128, (5, 4, 3, 3)).astype(np.int8), "qs": np.float32(0.01)}
        | batch_norm(rng, 5),
    )
    check_pass(fold_batch_norm, model, rng, changes=0, rtol=0, atol=0)
