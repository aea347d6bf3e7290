# SPDX-License-Identifier: Apache-2.0
"""Products of one activation with several weights become one."""

import numpy as np
import pytest

from quantrt.ir.sources import sources_of
from quantrt.model.passes.for_gpu.merge_projections import merge_projections
from tests.unit.model.check_pass import check_pass, model_of, op_types

FLOAT32 = 1e-6  # sums of eight products may be added in another order
SHAPE = "t = Constant<value_ints=[0, 0, 2, -1]>()"
HEADS = " ".join(f"{c}h = Reshape({c}, t) {c}t = Transpose<perm=[0,2,1,3]>({c}h)" for c in "qkv")
OUTPUTS = "float[...] qt, float[...] kt, float[...] vt"


def weights_of(rng, **shapes):
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def named(model):
    for number, node in enumerate(model.graph):
        node.name = node.name or f"{node.op_type}_{number}"
    return model


def test_queries_keys_and_values(rng):
    """Widths may differ, as where heads of keys are shared, and a bias may lack, as Whisper's keys do."""
    model = named(
        model_of(
            f"{SHAPE} a = MatMul(x, wq) q = Add(a, bq) k = MatMul(x, wk) b = MatMul(x, wv) v = Add(bv, b)"
            f" {HEADS}",
            inputs="float[2,5,8] x",
            outputs=OUTPUTS,
            weights=weights_of(rng, wq=(8, 8), wk=(8, 4), wv=(8, 4), bq=(8,), bv=(4,)),
        )
    )
    merged = check_pass(merge_projections, model, rng, changes=2, rtol=0, atol=FLOAT32)
    assert op_types(merged)[:4] == ["Constant", "MatMul", "Add", "Split"]
    assert op_types(merged).count("MatMul") == 1
    product, add, split = list(merged.graph)[1:4]
    assert sources_of(product) == ("MatMul_1", "MatMul_3", "MatMul_4")
    assert sources_of(add) == ("Add_2", "Add_5")
    assert sources_of(split) == ("Add_2", "MatMul_3", "Add_5")
    assert [value.name for value in split.outputs] == ["q", "k", "v"]
    assert not {"wq", "wk", "wv", "bq", "bv"} & set(merged.graph.initializers)


def test_products_without_any_bias(rng):
    model = named(
        model_of(
            f"{SHAPE} q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv) {HEADS}",
            inputs="float[2,5,8] x",
            outputs=OUTPUTS,
            weights=weights_of(rng, wq=(8, 8), wk=(8, 8), wv=(8, 8)),
        )
    )
    merged = check_pass(merge_projections, model, rng, changes=2, rtol=0, atol=FLOAT32)
    assert op_types(merged)[:3] == ["Constant", "MatMul", "Split"]


def test_gemm_with_and_without_transposed_weights(rng):
    model = named(
        model_of(
            "q = Gemm<transB=1>(x, wq, bq) k = Gemm(x, wk) t = Constant<value_ints=[2,-1]>()"
            " qt = Reshape(q, t) kt = Reshape(k, t)",
            inputs="float[6,8] x",
            outputs="float[...] qt, float[...] kt",
            weights=weights_of(rng, wq=(4, 8), wk=(8, 6), bq=(4,)),
        )
    )
    merged = check_pass(merge_projections, model, rng, changes=1, rtol=0, atol=FLOAT32)
    assert op_types(merged)[:2] == ["Gemm", "Split"]


def test_only_what_reads_the_same_value_is_merged(rng):
    """Cross-attention: keys and values read the encoder, queries the decoder."""
    model = named(
        model_of(
            f"{SHAPE} q = MatMul(x, wq) k = MatMul(z, wk) v = MatMul(z, wv) {HEADS}",
            inputs="float[2,5,8] x, float[2,7,8] z",
            outputs=OUTPUTS,
            weights=weights_of(rng, wq=(8, 8), wk=(8, 8), wv=(8, 8)),
        )
    )
    merged = check_pass(merge_projections, model, rng, changes=1, rtol=0, atol=FLOAT32)
    assert op_types(merged).count("MatMul") == 2


@pytest.mark.parametrize(
    "body",
    [
        "q = MatMul(x, wq) k = MatMul(x, wk) y = Relu(q) s = Sigmoid(k) z = Mul(s, y)",  # a gated layer
        "q = MatMul(x, wq) k = MatMul(x, wk) z = Add(q, k)",
        "q = MatMul(x, wq) z = MatMul(x, wk) y = Transpose(q)",  # one result is the caller's
        "q = Gemm<alpha=0.5>(x, wq) k = Gemm(x, wk) y = Transpose(q) z = Transpose(k)",
    ],
)
def test_what_would_lose_a_fusion_stays(body, rng):
    model = named(
        model_of(
            body,
            inputs="float[5,8] x",
            outputs="float[...] z",
            weights=weights_of(rng, wq=(8, 8), wk=(8, 8)),
        )
    )
    check_pass(merge_projections, model, rng, changes=0, rtol=0, atol=0)


def test_a_weight_that_others_read_is_kept(rng):
    model = named(
        model_of(
            "q = MatMul(x, wq) k = MatMul(x, wk) y = Transpose(q) z = Transpose(k) u = MatMul(z, wq)",
            inputs="float[8,8] x",
            outputs="float[...] y, float[...] u",
            weights=weights_of(rng, wq=(8, 8), wk=(8, 8)),
        )
    )
    merged = check_pass(merge_projections, model, rng, changes=1, rtol=0, atol=FLOAT32)
    assert "wq" in merged.graph.initializers and "wk" not in merged.graph.initializers
