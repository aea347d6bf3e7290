# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from quantrt.assign.accuracy.replayed import Replayed

BATCHES = [{"x": np.full((2, 4), number, np.float32)} for number in range(5)]
BYTES = 32
"""Of one output."""


@pytest.mark.parametrize(("room", "kept"), [(5 * BYTES, 5), (3 * BYTES + 1, 3), (0, 0)])
def test_batches_are_computed_once_as_far_as_there_is_room(room: int, kept: int):
    asked = []

    def run(inputs):
        asked.append(inputs["x"][0, 0])
        return {"y": 2 * inputs["x"]}

    replayed = Replayed(run, room)
    for _ in range(2):
        again = replayed.again()
        found = [again(batch)["y"][0, 0] for batch in BATCHES]
        assert found == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert asked == [0.0, 1.0, 2.0, 3.0, 4.0, *range(kept, 5)]


def test_a_time_that_ends_early_leaves_the_rest_to_the_next():
    replayed = Replayed(lambda inputs: {"y": 2 * inputs["x"]})
    first = replayed.again()
    first(BATCHES[0])
    again = replayed.again()
    assert [again(batch)["y"][0, 0] for batch in BATCHES] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_what_is_kept_is_not_what_the_library_may_write_to_again():
    buffer = np.zeros(3, np.float32)

    def run(inputs):
        buffer[:] = inputs["x"][0, 0]
        return {"y": buffer}

    replayed = Replayed(run)
    again = replayed.again()
    for batch in BATCHES:
        again(batch)
    assert replayed.again()(BATCHES[0])["y"].tolist() == [0.0, 0.0, 0.0]
