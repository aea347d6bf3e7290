# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quantrt.calibrate.histogram import CHUNK_SIZE, KEY_COUNT, Histogram, bin_edges


def counted(values) -> Histogram:
    histogram = Histogram()
    assert histogram.add(np.asarray(values)) == 0
    return histogram


def reference_counts(values: np.ndarray) -> np.ndarray:
    counts = np.zeros(KEY_COUNT, np.int64)
    for bits in values.astype(np.float32).view(np.uint32).ravel():
        counts[bits >> 16] += 1
    return counts


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_counts_are_of_the_upper_half_of_the_bits(size, dtype, rng):
    values = rng.standard_normal(size).astype(dtype)
    histogram = counted(values)
    np.testing.assert_array_equal(histogram.counts, reference_counts(values))
    assert (histogram.lo, histogram.hi, histogram.count) == (
        np.float32(values.min()),
        np.float32(values.max()),
        size,
    )


def test_large_arrays_give_the_same_counts_as_their_small_pieces(rng):
    values = rng.standard_normal(2 * CHUNK_SIZE + 13, np.float32)
    pieces = Histogram()
    for start in range(0, values.size, 1 << 14):
        pieces.add(values[start : start + (1 << 14)])
    np.testing.assert_array_equal(counted(values).counts, pieces.counts)


def test_arrays_that_are_not_contiguous_are_counted(rng):
    values = rng.standard_normal((6, 8), np.float32)
    np.testing.assert_array_equal(counted(values.T[::2]).counts, reference_counts(values.T[::2].copy()))


@pytest.mark.parametrize("size", [100, CHUNK_SIZE + 100])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -np.nan])
def test_values_that_are_not_finite_are_counted_as_such(size, bad, rng):
    values = rng.standard_normal(size, np.float32)
    values[[3, 50]] = bad
    assert Histogram().add(values) == 2


def test_a_nan_whose_payload_is_in_the_low_bits_is_found():
    assert Histogram().add(np.array([0x7F800001], np.uint32).view(np.float32)) == 1


def test_an_empty_array_changes_nothing():
    assert counted(np.empty((0, 4), np.float32)).count == 0


def test_every_finite_value_lies_within_the_edges_of_its_bin(rng):
    bits = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    left, right = bin_edges((values.view(np.uint32) >> 16).astype(np.intp))
    assert np.all((left <= values) & (values <= right))
    normal = np.abs(values) >= np.finfo(np.float32).tiny
    assert np.all((right - left)[normal] <= np.abs(values[normal]) / 64)
