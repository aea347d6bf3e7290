# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import quantrt.quantize.scales.weight_scale as weight_scale
from quantrt.errors import ModelError
from quantrt.quantize.scales.weight_scale import CLIP_RATIOS, MARGIN, least_error_scale

Array = np.ndarray[Any, Any]

KINDS = ("normal", "uniform", "heavy tails", "one outlier", "ternary", "four bits")


def rows_of(kind: str, count: int, length: int, rng: np.random.Generator) -> Array:
    """Weights as networks have them, and as earlier quantization left them."""
    rows = rng.standard_normal((count, length)).astype(np.float32)
    match kind:
        case "uniform":
            rows = rng.uniform(-1, 1, rows.shape).astype(np.float32)
        case "heavy tails":
            rows = rng.standard_t(3, rows.shape).astype(np.float32)
        case "one outlier":
            rows[:, 0] = 30.0
        case "ternary":
            rows = np.sign(np.round(rows)) * np.float32(0.03)
        case "four bits":
            rows = np.clip(np.round(rows * 3), -7, 7) * np.float32(0.01)
    return rows


def errors(rows: Array, qmax: int) -> Array:
    """Squared error of every row at every ratio, in float64 throughout: [ratios, C]."""
    amax = np.abs(rows).max(axis=1)
    found = []
    for ratio in CLIP_RATIOS.astype(np.float32):
        scale = amax * ratio / np.float32(qmax)
        steps = (np.abs(rows) / np.where(scale > 0, scale, 1)[:, None]).astype(np.float64)
        squares = np.square(np.minimum(np.rint(steps), qmax) - steps).sum(axis=1)
        found.append(squares * np.square(scale, dtype=np.float64))
    return np.array(found)


@pytest.mark.parametrize("qmax", [127, 63, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_no_scale_has_less_error(kind: str, qmax: int, rng: np.random.Generator):
    for count, length in ((40, 7), (30, 300), (6, 5000)):
        rows = rows_of(kind, count, length, rng)
        tried = np.abs(rows).max(axis=1) * CLIP_RATIOS.astype(np.float32)[:, None] / np.float32(qmax)
        chosen = np.argmax(tried == least_error_scale(rows, qmax), axis=0)
        every = errors(rows, qmax)
        np.testing.assert_array_less(
            every[chosen, np.arange(count)], every.min(axis=0) * (1 + MARGIN / 10) + 1e-30
        )


@pytest.mark.parametrize("elements", [1, 1000, 1 << 19])
def test_the_order_in_memory_and_the_blocks_change_nothing(
    elements: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    rows = rows_of("normal", 50, 300, rng)
    want = least_error_scale(rows, 127)
    monkeypatch.setattr(weight_scale, "BLOCK_ELEMENTS", elements)
    for form in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(least_error_scale(form, 127), want)


def test_smaller_scales_are_not_tried_where_clipping_alone_costs_more(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    tried = []
    real = weight_scale._error

    def counted(magnitudes: Array, *rest: Any) -> Array:
        tried.append(magnitudes.shape[0])
        return real(magnitudes, *rest)

    monkeypatch.setattr(weight_scale, "_error", counted)
    least_error_scale(rows_of("uniform", 64, 500, rng), 127)
    assert sum(tried) < 3 * 64  # of 11


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_has_the_scale_zero(shape: tuple[int, int]):
    np.testing.assert_array_equal(least_error_scale(np.zeros(shape, np.float32), 127), np.zeros(shape[0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad: float):
    with pytest.raises(ModelError, match="NaN or infinite"):
        least_error_scale(np.array([[1.0, 2.0], [3.0, bad]], np.float32), 127)
