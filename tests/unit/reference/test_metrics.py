# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from quantrt.errors import DataError
from quantrt.reference.metrics import (
    Error,
    cosine,
    decibels,
    in_one_shape,
    mean_noise_ratio,
    noise_ratio,
    sqnr_db,
    top1,
)

REF = np.array([3.0, 4.0], np.float32)


@pytest.mark.parametrize(
    ("got", "ratio", "db", "angle", "largest"),
    [
        ([3.0, 4.0], 0.0, math.inf, 1.0, 0.0),
        ([3.0, 4.5], 0.01, 20.0, 27 / 5 / math.hypot(3, 4.5), 0.5),
        ([-3.0, -4.0], 4.0, -10 * math.log10(4), -1.0, 8.0),
        ([0.0, 0.0], 1.0, 0.0, 0.0, 4.0),
    ],
)
def test_each_metric_of_a_known_pair(got, ratio, db, angle, largest):
    got = np.array(got, np.float32)
    assert noise_ratio(REF, got) == pytest.approx(ratio, abs=1e-12)
    assert sqnr_db(REF, got) == pytest.approx(db)
    assert cosine(REF, got) == pytest.approx(angle)
    error = Error()
    error.add(REF, got)
    assert error.max_abs == pytest.approx(largest)


def test_two_silent_streams_are_equal_and_noise_on_silence_is_infinite():
    zero = np.zeros(3, np.float32)
    assert (noise_ratio(zero, zero), sqnr_db(zero, zero), cosine(zero, zero)) == (0.0, math.inf, 1.0)
    assert (noise_ratio(zero, zero + 1), sqnr_db(zero, zero + 1), cosine(zero, zero + 1)) == (
        math.inf,
        -math.inf,
        0.0,
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["reference", "other"])
def test_a_value_that_is_not_finite_is_never_good(bad, side):
    spoilt = np.array([bad, 4.0], np.float32)
    pair = (spoilt, REF) if side == "reference" else (REF, spoilt)
    ratio = noise_ratio(*pair)
    assert math.isnan(ratio) or ratio == math.inf
    assert not sqnr_db(*pair) > 0
    assert not cosine(*pair) > 0.5
    error = Error()
    error.add(*pair)
    assert not math.isfinite(error.max_abs)


def test_noise_that_is_not_a_number_stays_so_on_a_silent_reference():
    assert math.isnan(noise_ratio(np.zeros(2), np.array([math.nan, 0.0])))


def test_batches_add_up_to_the_whole(rng: np.random.Generator):
    ref, got = rng.standard_normal((2, 50, 7)).astype(np.float32)
    parts = Error()
    for rows in (slice(0, 1), slice(1, 30), slice(30, 50)):
        parts.add(ref[rows], got[rows])
    whole = Error()
    whole.add(ref, got)
    assert parts.count == whole.count == 350
    assert parts.sqnr_db == pytest.approx(whole.sqnr_db, abs=1e-9)
    assert parts.cosine == pytest.approx(whole.cosine, abs=1e-12)
    assert parts.max_abs == whole.max_abs


def test_a_nan_is_not_forgotten_by_later_batches():
    error = Error()
    error.add(REF, np.array([math.nan, 0.0], np.float32))
    error.add(REF, REF)
    assert math.isnan(error.max_abs) and math.isnan(error.noise_ratio) and math.isnan(error.cosine)


def test_empty_arrays_change_nothing():
    error = Error()
    error.add(np.zeros((0, 3)), np.zeros((0, 3)))
    assert error == Error()


def test_arrays_of_two_shapes_are_not_compared():
    with pytest.raises(DataError, match="compare") as caught:
        Error().add(np.zeros((2, 1)), np.zeros((2, 3)))
    assert "(2, 3)" in str(caught.value)


def test_what_one_of_two_arrays_lacks_is_zero_in_one_shape():
    boxes, found = np.arange(6.0).reshape(3, 2), np.arange(8.0).reshape(4, 2)
    ref, got = in_one_shape(boxes, found)
    np.testing.assert_array_equal(ref, [[0, 1], [2, 3], [4, 5], [0, 0]])
    np.testing.assert_array_equal(got, found)
    ref, got = in_one_shape(np.ones((2, 3)), np.ones((3, 2)))
    assert (ref.tolist(), got.tolist()) == ([[1, 1, 1], [1, 1, 1], [0, 0, 0]], [[1, 1, 0]] * 3)
    one, other = in_one_shape(boxes, boxes[0])
    assert one is boxes and other.shape == (2,)


def test_float16_is_compared_in_double_precision():
    big = np.full(4, 60000.0, np.float16)
    assert noise_ratio(big, big) == 0.0
    assert math.isfinite(noise_ratio(big, big / 2))


def test_top1_counts_rows_whose_largest_logit_is_at_the_label():
    logits = np.array([[1, 2], [5, 1], [0, 3]], np.float32)
    assert top1(logits, np.array([1, 0, 0])) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("logits", "labels"),
    [((3,), (3,)), ((3, 2), (2,)), ((3, 2), (3, 1)), ((0, 2), (0,))],
    ids=["no classes", "too few labels", "labels of two axes", "no rows"],
)
def test_top1_refuses_shapes_that_do_not_fit(logits, labels):
    with pytest.raises(DataError, match="top1"):
        top1(np.zeros(logits), np.zeros(labels, int))


def test_the_noise_of_several_outputs_is_the_mean_of_each_over_all_batches():
    wanted = [{"a": np.array([3.0]), "b": np.array([1.0, 1.0])}, {"a": np.array([4.0]), "b": np.array([0.0])}]
    got = [{"a": np.array([3.0]), "b": np.array([1.0, 0.0])}, {"a": np.array([9.0]), "b": np.array([0.0])}]
    assert mean_noise_ratio(wanted, got) == pytest.approx((25 / 25 + 1 / 2) / 2)
    with pytest.raises(ValueError, match="shorter"):
        mean_noise_ratio(wanted, got[:1])


@pytest.mark.parametrize(("ratio", "db"), [(0.01, 20.0), (0.0, math.inf), (math.inf, -math.inf)])
def test_decibels_of_a_noise_ratio(ratio: float, db: float):
    assert decibels(ratio) == pytest.approx(db)
    assert math.isnan(decibels(math.nan))
