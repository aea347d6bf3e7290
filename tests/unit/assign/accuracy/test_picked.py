# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable

import numpy as np

from quantrt.assign.accuracy.picked import picked
from quantrt.calibrate.dataset import Batch


def batches(x: np.ndarray, size: int) -> Iterable[Batch]:
    for first in range(0, len(x), size):
        part = x[first : first + size]
        yield Batch({"x": part}, {}, first, len(part))


def test_samples_come_in_runs_of_the_batches_rows():
    """Seven of eleven in batches of four: a run of four, and one of three with the first of them repeated."""
    x = np.arange(22, dtype=np.float32).reshape(11, 2)
    is_picked = np.isin(np.arange(11), [1, 2, 4, 6, 7, 8, 10])
    runs = list(picked(batches(x, 4), is_picked))
    assert [places.tolist() for places, _ in runs] == [[1, 2, 4, 6], [7, 8, 10]]
    np.testing.assert_array_equal(runs[0][1]["x"], x[[1, 2, 4, 6]])
    np.testing.assert_array_equal(runs[1][1]["x"], x[[7, 8, 10, 7]])


def test_nothing_is_run_of_batches_without_any():
    assert list(picked(batches(np.zeros((6, 1)), 2), np.zeros(6, bool))) == []


def test_samples_of_another_shape_begin_a_run():
    parts = [Batch({"x": np.full((2, 3), 1.0)}, {}, 0, 2), Batch({"x": np.full((2, 5), 2.0)}, {}, 2, 2)]
    runs = list(picked(parts, np.array([True, False, True, True])))
    assert [(places.tolist(), fed["x"].shape) for places, fed in runs] == [([0], (2, 3)), ([2, 3], (2, 5))]
