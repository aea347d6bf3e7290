# SPDX-License-Identifier: Apache-2.0
"""Fused embeddings compute what ONNX Runtime's own operators do."""

import numpy as np
import pytest

from tests.unit.model.contrib.spelling import M, check, floats, reason_of


@pytest.mark.parametrize(
    "body",
    [
        "y, m = {}(ids, , word, places, , g, b)",
        "y, , y2 = {}(ids, segments, word, places, segment, g, b)",
        "y, y3 = {}<mask_index_type=1>(ids, segments, word, places, segment, g, b, mask)",
        "y, y3, y2 = {}<epsilon=0.001>(ids, segments, word, places, segment, g, b, mask, at)",
        "y, m = {}(ids, , word, places, , g, b, , row)",
    ],
)
def test_embeddings(body: str, rng):
    tables = {"word": floats(rng, 50, 16), "places": floats(rng, 12, 16), "segment": floats(rng, 2, 16)}
    inputs = {
        "ids": rng.integers(0, 50, (3, 9)).astype(np.int32),
        "segments": rng.integers(0, 2, (3, 9)).astype(np.int32),
        "mask": (np.arange(9) < np.array([[9], [4], [1]])).astype(np.int32),
        "at": rng.integers(0, 12, (3, 9)).astype(np.int32),
        "row": rng.integers(0, 12, (1, 9)).astype(np.int32),
    }
    used = {name: array for name, array in inputs.items() if name in body.replace("segment,", "")}
    weights = tables | {"g": floats(rng, 16), "b": floats(rng, 16)}
    check(body.format(f"{M}.EmbedLayerNormalization"), used, weights)


def codes(rng, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("has_segments", [False, True])
def test_embeddings_in_codes(has_segments: bool, rng):
    weights = {
        "word": codes(rng, 50, 16),
        "places": codes(rng, 12, 16),
        "segment": codes(rng, 2, 16),
        "g": codes(rng, 16),
        "b": codes(rng, 16),
    }
    for index, name in enumerate(tuple(weights)):
        weights[f"{name}_s"] = np.asarray(0.01 * (index + 1), np.float32)
        weights[f"{name}_z"] = np.asarray(100 + 10 * index, np.uint8)
    inputs = {
        "ids": rng.integers(0, 50, (3, 9)).astype(np.int32),
        "mask": (np.arange(9) < np.array([[9], [4], [1]])).astype(np.int32),
    }
    segment = ["", "", "", ""]
    if has_segments:
        inputs["at"] = rng.integers(0, 2, (3, 9)).astype(np.int32)
        segment = ["at", "segment", "segment_s", "segment_z"]
    body = (
        f"y, y3 = {M}.QEmbedLayerNormalization(ids, {segment[0]}, word, places, {segment[1]}, g, b, mask, "
        f"word_s, places_s, {segment[2]}, g_s, b_s, word_z, places_z, {segment[3]}, g_z, b_z)"
    )
    check(body, inputs, weights, most=1e-5)


def test_lengths_of_no_mask_stay(rng):
    ids = np.zeros((1, 2), np.int32)
    body = f"y, y3 = {M}.EmbedLayerNormalization(ids, , t, t, , g, g)"
    reason = reason_of(body, {"ids": ids}, {"t": floats(rng, 3, 4), "g": floats(rng, 4)})
    assert reason == "its mask_index is used, and it has no mask"
