# SPDX-License-Identifier: Apache-2.0
"""Runs on several batches at once."""

import threading
from functools import partial

import numpy as np
import pytest

from quantrt.assign.accuracy.ahead import ahead, over
from quantrt.assign.accuracy.replayed import Replayed
from quantrt.calibrate.dataset import Batch

BATCHES = [Batch({"x": np.full((2, 3), n, np.float32)}, {}, 2 * n, 2) for n in range(7)]


@pytest.mark.parametrize("lanes", [1, 3])
def test_items_come_in_their_order_with_what_their_tasks_make(lanes: int):
    tasks = ((n, partial(pow, n, 2)) for n in range(10))
    assert list(ahead(tasks, lanes)) == [(n, n * n) for n in range(10)]


def test_as_many_tasks_as_lanes_run_at_once():
    """Each of two waits for the other: one after the other they would wait for ever."""
    both = threading.Barrier(2)
    tasks = [(n, partial(both.wait, 30.0)) for n in range(2)]
    assert sorted(place for _, place in ahead(tasks, 2)) == [0, 1]


def test_an_error_of_a_task_is_told_where_its_item_would_come():
    def fail() -> int:
        raise ValueError("of the second")

    found = ahead([(0, lambda: 5), (1, fail)], 2)
    assert next(found) == (0, 5)
    with pytest.raises(ValueError, match="of the second"):
        next(found)


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_time_that_is_left_is_gone_on_with(lanes: int):
    """The first three batches, then the rest; another time computes nothing anew."""
    asked = []

    def run(inputs):
        asked.append(inputs["x"][0, 0])
        return {"y": 2 * inputs["x"]}

    replayed = Replayed(run, lanes=lanes)
    again = replayed.again()
    first, rest = list(again.over(BATCHES[:3])), list(again.over(BATCHES[3:]))
    for (batch, outputs), own in zip([*first, *rest], BATCHES, strict=True):
        assert batch is own
        np.testing.assert_array_equal(outputs["y"], 2 * own.inputs["x"])
    assert [outputs["y"][0, 0] for _, outputs in over(replayed.again(), BATCHES)] == [0, 2, 4, 6, 8, 10, 12]
    assert sorted(asked) == list(range(7))


def test_a_plain_run_is_called_batch_by_batch():
    found = over(lambda inputs: {"y": inputs["x"] + 1}, BATCHES[:2])
    assert [outputs["y"][0, 0] for _, outputs in found] == [1.0, 2.0]
