# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding and GroupQueryAttention compute what ONNX Runtime's own operators do."""

import numpy as np
import pytest

from tests.unit.model.contrib.spelling import M, check, floats, reason_of

B, S, N, K, D, LONGEST = 2, 6, 4, 2, 16, 20
"""Texts, tokens, heads of q, of k and v, elements of a head, places that there are angles for."""


def caches(rng, half: int = D // 2) -> dict[str, np.ndarray]:
    angles = rng.uniform(-3, 3, (LONGEST, half))
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [np.array([4]), np.array([[0, 3, 1, 9, 19, 2], [7, 7, 0, 1, 2, 3]])])
@pytest.mark.parametrize("shape", [(B, S, N * D), (B, N, S, D)])
def test_rotations(interleaved: int, places: np.ndarray, shape: tuple[int, ...], rng):
    body = f"y = {M}.RotaryEmbedding<interleaved={interleaved}>(x, p, cos, sin)"
    check(body, {"x": floats(rng, *shape), "p": places.astype(np.int64)}, caches(rng))


@pytest.mark.parametrize("shape", [(B, S, N * D), (B, N, S, D)])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_part_of_a_head(shape: tuple[int, ...], interleaved: int, rng):
    body = (
        f"y = {M}.RotaryEmbedding<num_heads={N}, rotary_embedding_dim=8, interleaved={interleaved}>"
        "(x, p, cos, sin)"
    )
    check(body, {"x": floats(rng, *shape), "p": np.array([0])}, caches(rng, 4))


def test_angles_that_are_computed(rng):
    inputs = {"x": floats(rng, B, S, N * D), "p": np.array([2]), **caches(rng)}
    for interleaved in (0, 1):
        check(f"y = {M}.RotaryEmbedding<interleaved={interleaved}>(x, p, cos, sin)", inputs)


def grouped(rng, *, packed: bool = False) -> dict[str, np.ndarray]:
    if packed:
        return {"q": floats(rng, B, S, (N + 2 * K) * D)}
    return {"q": floats(rng, B, S, N * D), "k": floats(rng, B, S, K * D), "v": floats(rng, B, S, K * D)}


def lengths(*totals: int) -> dict[str, np.ndarray]:
    return {"l": np.array(totals, np.int32) - 1, "t": np.asarray(max(totals), np.int32)}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "attributes",
    [
        "",
        ", scale=0.4",
        ", softcap=2.0",
        ", local_window_size=3",
        ", do_rotary=1",
        ", do_rotary=1, rotary_interleaved=1",
    ],
)
def test_grouped_queries(packed: bool, attributes: str, rng):
    parts = "q, , " if packed else "q, k, v"
    ends = "cos, sin" if "rotary" in attributes else ", "
    body = (
        f"y, y1, y2 = {M}.GroupQueryAttention<num_heads={N}, kv_num_heads={K}{attributes}>"
        f"({parts}, , , l, t, {ends})"
    )
    inputs = grouped(rng, packed=packed) | lengths(S, S)
    check(body, inputs, caches(rng) if "rotary" in attributes else {}, most=1e-5)


def test_a_bias_on_grouped_queries(rng):
    inputs = grouped(rng) | lengths(S, S) | {"a": floats(rng, 1, N, S, S), "p": np.tile(np.arange(S), (B, 1))}
    body = (
        f"y, y1, y2 = {M}.GroupQueryAttention<num_heads={N}, kv_num_heads={K}, do_rotary=1>"
        "(q, k, v, , , l, t, cos, sin, p, a)"
    )
    check(body, inputs, caches(rng), most=1e-5)


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize(("rows", "totals"), [(5, (6, 6)), (5, (6, 3)), (12, (9, 4)), (0, (1, 1))])
def test_one_more_token(rotary: int, rows: int, totals: tuple[int, int], rng):
    """Caches that grow and caches of the largest size, texts of one length and of two."""
    inputs = {name: array[:, :1] for name, array in grouped(rng).items()} | lengths(*totals)
    inputs |= {name: floats(rng, B, K, rows, D) for name in ("pk", "pv")}
    body = (
        f"y, y1, y2 = {M}.GroupQueryAttention<num_heads={N}, kv_num_heads={K}, do_rotary={rotary}>"
        "(q, k, v, pk, pv, l, t, cos, sin)"
    )
    check(body, inputs, caches(rng), most=1e-5)


def test_a_first_step_into_a_cache(rng):
    inputs = grouped(rng) | lengths(S, S) | {name: floats(rng, B, K, 12, D) for name in ("pk", "pv")}
    body = (
        f"y, y1, y2 = {M}.GroupQueryAttention<num_heads={N}, kv_num_heads={K}, do_rotary=1>"
        "(q, k, v, pk, pv, l, t, cos, sin)"
    )
    check(body, inputs, caches(rng), most=1e-5)


@pytest.mark.parametrize(
    ("attributes", "extra", "why"),
    [
        (", smooth_softmax=1", "", "it has smooth_softmax"),
        ("", ", , , , , sink", "it has the input head_sink"),
    ],
)
def test_what_stays(attributes: str, extra: str, why: str, rng):
    body = (
        f"y, y1, y2 = {M}.GroupQueryAttention<num_heads={N}, kv_num_heads={K}{attributes}>"
        f"(q, k, v, , , l, t{extra})"
    )
    assert why in reason_of(body, grouped(rng) | lengths(S, S), {"sink": floats(rng, N)})
