# SPDX-License-Identifier: Apache-2.0
"""Attention, QAttention and MultiHeadAttention compute what ONNX Runtime's own operators do."""

import numpy as np
import pytest

from quantrt.model.passes.spell.spell_contrib import spell_contrib
from tests.unit.model.check_pass import run
from tests.unit.model.contrib.spelling import M, check, floats, graph_of, reason_of, spelled

B, S, N, D = 3, 7, 2, 5
"""Texts, tokens, heads and elements of a head."""

LENGTHS = np.array([7, 4, 1], np.int32)
STARTS = np.array([2, 0, 0], np.int32)

MASKS = {
    "lengths": LENGTHS,
    "ends and starts": np.concatenate([LENGTHS, STARTS]),
    "lengths and sums": np.concatenate([LENGTHS, np.cumsum([0, *LENGTHS]), np.cumsum([0, *LENGTHS])]).astype(
        np.int32
    ),
    "keys": (np.arange(S) < LENGTHS[:, None]).astype(np.int32),
    "queries": (np.arange(S * S * B).reshape(B, S, S) % 3 > 0).astype(np.int32),
}


def projection(rng, width: int = 12, out: int = 3 * N * D) -> dict[str, np.ndarray]:
    return {"w": floats(rng, width, out), "b": floats(rng, out)}


@pytest.mark.parametrize("mask", [None, *MASKS])
@pytest.mark.parametrize("attributes", ["", ", unidirectional=1", ", scale=0.3, mask_filter_value=-7.5"])
def test_attention(mask: str | None, attributes: str, rng):
    inputs = {"x": floats(rng, B, S, 12)} | ({} if mask is None else {"m": MASKS[mask]})
    body = f"y = {M}.Attention<num_heads={N}{attributes}>(x, w, b{'' if mask is None else ', m'})"
    check(body, inputs, projection(rng), most=1e-5)


@pytest.mark.parametrize("bias", [(B, N, S, S), (1, N, S, S), (B, 1, S, S), (1, 1, S, S)])
def test_attention_with_a_bias(bias: tuple[int, ...], rng):
    inputs = {"x": floats(rng, B, S, 12), "m": MASKS["keys"], "a": floats(rng, *bias)}
    check(f"y = {M}.Attention<num_heads={N}>(x, w, b, m, , a)", inputs, projection(rng), most=1e-5)


@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_a_past(has_mask: bool, causal: int, rng):
    P = 4
    inputs = {"x": floats(rng, B, S, 12), "p": floats(rng, 2, B, N, P, D)}
    if has_mask:
        inputs["m"] = np.concatenate([np.ones((B, P), np.int32), MASKS["keys"]], axis=1)
    mask = "m" if has_mask else ""
    body = f"y, y1 = {M}.Attention<num_heads={N}, unidirectional={causal}>(x, w, b, {mask}, p)"
    check(body, inputs, projection(rng), most=1e-5)


def test_the_first_step_hands_out_its_keys(rng):
    body = f"y, y1 = {M}.Attention<num_heads={N}, unidirectional=1>(x, w, b)"
    check(body, {"x": floats(rng, B, S, 12)}, projection(rng), most=1e-5)


def test_values_of_another_width(rng):
    body = f"y = {M}.Attention<num_heads={N}, qkv_hidden_sizes=[10, 10, 6]>(x, w, b)"
    check(body, {"x": floats(rng, B, S, 12)}, projection(rng, out=26), most=1e-5)


def test_weights_that_are_computed(rng):
    inputs = {"x": floats(rng, B, S, 12), "w": floats(rng, 12, 3 * N * D)}
    body = f"y = {M}.Attention<num_heads={N}>(x, w, b)"
    check(body, inputs, {"b": floats(rng, 3 * N * D)}, most=1e-5)


def test_products_are_three_and_sources_are_kept(rng):
    """Each projection is a product by a constant, as exporters write it: it gets codes of its own."""
    graph = graph_of(
        f"y = {M}.Attention<num_heads={N}>(x, w, b)", {"x": floats(rng, B, S, 12)}, projection(rng)
    )
    spell_contrib(graph)
    products = [node for node in graph.graph if node.op_type == "MatMul"]
    assert sum(node.inputs[1].const_value is not None for node in products) == 3
    assert {node.metadata_props["quantrt.sources"] for node in graph.graph} == {"Attention_0"}


@pytest.mark.parametrize("columns", [1, 3 * N * D])
def test_attention_of_codes(columns: int, rng):
    weights = {
        "w": rng.integers(-100, 100, (12, 3 * N * D)).astype(np.int8),
        "b": floats(rng, 3 * N * D),
        "sx": np.asarray(0.02, np.float32),
        "sw": rng.uniform(0.001, 0.01, columns).astype(np.float32).reshape(-1 if columns > 1 else ()),
        "zx": np.asarray(120, np.uint8),
        "zw": np.zeros(columns, np.int8).reshape(-1 if columns > 1 else ()),
    }
    inputs = {"x": rng.integers(0, 256, (B, S, 12)).astype(np.uint8), "m": LENGTHS}
    check(f"y = {M}.QAttention<num_heads={N}>(x, w, b, sx, sw, m, zx, zw)", inputs, weights, most=1e-5)


@pytest.mark.parametrize("mask", [None, "lengths", "lengths and sums", "keys", "queries"])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(mask: str | None, has_bias: bool, causal: int, rng):
    inputs = {name: floats(rng, B, S, N * D) for name in "qkv"}
    if mask is not None:
        inputs["m"] = MASKS[mask]
    if has_bias:
        inputs["a"] = floats(rng, 1, N, S, S)
    parts = f"{'m' if mask else ''}, {'a' if has_bias else ''}"
    body = f"y = {M}.MultiHeadAttention<num_heads={N}, unidirectional={causal}>(q, k, v, b, {parts})"
    check(body, inputs, {"b": floats(rng, 3 * N * D)}, most=1e-5)


def test_attention_across(rng):
    """Other texts than those that ask, values of another width, a bias of three parts, a scale."""
    inputs = {"q": floats(rng, B, S, N * D), "k": floats(rng, B, 4, N * D), "v": floats(rng, B, 4, N * 3)}
    weights = {"b": floats(rng, 2 * N * D + N * 3)}
    check(f"y = {M}.MultiHeadAttention<num_heads={N}, scale=0.7>(q, k, v, b)", inputs, weights, most=1e-5)


def test_keys_with_heads_apart(rng):
    inputs = {"q": floats(rng, B, S, N * D), "k": floats(rng, B, N, 4, D), "v": floats(rng, B, N, 4, D)}
    check(f"y = {M}.MultiHeadAttention<num_heads={N}>(q, k, v)", inputs, most=1e-5)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("has_mask", [False, True])
def test_multi_head_attention_with_a_past(causal: int, has_mask: bool, rng):
    P = 3
    inputs = {name: floats(rng, B, S, N * D) for name in "qkv"}
    inputs |= {name: floats(rng, B, N, P, D) for name in ("pk", "pv")}
    if has_mask:
        inputs["m"] = np.concatenate([np.ones((B, P), np.int32), MASKS["keys"]], axis=1)
    body = (
        f"y, y1, y2 = {M}.MultiHeadAttention<num_heads={N}, unidirectional={causal}>"
        f"(q, k, v, , {'m' if has_mask else ''}, , pk, pv)"
    )
    check(body, inputs, most=1e-5)


def test_the_first_step_hands_out_keys_and_values(rng):
    inputs = {name: floats(rng, B, S, N * D) for name in "qkv"}
    check(f"y, y1, y2 = {M}.MultiHeadAttention<num_heads={N}>(q, k, v)", inputs, most=1e-5)


def test_packed_operands(rng):
    """ONNX Runtime takes these on GPUs alone: held against its own operator on the parts."""
    q, k, v = (floats(rng, B, S, N, D) for _ in range(3))
    flat = {name: part.reshape(B, S, N * D) for name, part in zip("qkv", (q, k, v), strict=True)}
    want = run(graph_of(f"y = {M}.MultiHeadAttention<num_heads={N}>(q, k, v)", flat, {}), flat)[0]
    packed = {
        f"y = {M}.MultiHeadAttention<num_heads={N}>(x)": {"x": np.stack([q, k, v], axis=3)},
        f"y = {M}.MultiHeadAttention<num_heads={N}>(q, kv)": {"q": flat["q"], "kv": np.stack([k, v], axis=3)},
    }
    for body, inputs in packed.items():
        got = run(spelled(graph_of(body, inputs, {})), inputs)[0]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f"y = {M}.Attention<num_heads={N}, do_rotary=1>(x, w, b)", "it has do_rotary"),
        (f"y = {M}.Attention<num_heads={N}>(x, w, b, four)", "its mask 'four' has 4 axes"),
        (f"y = {M}.Attention<num_heads={N}>(x, w, b, odd)", "has 5 elements for 3 texts"),
        (f"y = {M}.Attention<num_heads=4>(x, w, b)", "its queries of 10 are not whole heads: it has 4"),
        (f"y, , , y1 = {M}.MultiHeadAttention<num_heads={N}>(q, q, q)", "its output qk is used"),
        (f"y = {M}.MultiHeadAttention<num_heads={N}>(q)", "it has no key, and its query has 3 axes, not 5"),
    ],
)
def test_what_stays(body: str, why: str, rng):
    inputs = {
        "x": floats(rng, B, S, 12),
        "q": floats(rng, B, S, N * D),
        "four": np.ones((B, 1, S, S), np.int32),
        "odd": np.ones(5, np.int32),
    }
    assert why in reason_of(body, inputs, projection(rng))
