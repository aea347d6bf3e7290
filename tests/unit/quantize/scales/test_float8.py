# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ml_dtypes
import numpy as np

from quantrt.quantize.scales.float8 import to_e4m3

E4M3 = ml_dtypes.float8_e4m3fn


def same(values: np.ndarray) -> None:
    np.testing.assert_array_equal(to_e4m3(values).view(np.uint8), values.astype(E4M3).view(np.uint8))


def test_numbers_halfway_between_two_and_beside_them_round_as_the_cast_does():
    codes = np.arange(0x7F, dtype=np.uint8).view(E4M3).astype(np.float32)
    halfway = (codes[1:] + codes[:-1]) / 2
    values = np.concatenate([codes, halfway])
    values = np.concatenate(
        [values, np.nextafter(values, np.float32(0)), np.nextafter(values, np.float32(448))]
    )
    same(np.concatenate([values, -values]))


def test_any_bits_within_the_range_round_as_the_cast_does(rng: np.random.Generator):
    values = rng.integers(0, 1 << 32, 1 << 20, np.uint32).view(np.float32)
    same(values[np.abs(values) <= 448])
    same(rng.standard_normal((64, 33, 9)).astype(np.float32))


def test_nan_stays_nan_and_zero_keeps_its_sign():
    values = np.array([np.nan, -np.nan, 0.0, -0.0], np.float32)
    assert to_e4m3(values).view(np.uint8).tolist() == [0x7F, 0xFF, 0x00, 0x80]
