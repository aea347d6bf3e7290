# SPDX-License-Identifier: Apache-2.0
"""A lane's work is in order whatever streams its callers have, on streams that keep what precedes what.

There is no GPU here: a stream is the list of what is done before its next work.
"""

import random
import types

import pytest
import torch

from quantrt.runtime.cuda.own_stream import OwnStream


class Stream:
    """What precedes its next work; `waits`: how often it was told to wait for another."""

    device_index = 0

    def __init__(self, device: object = None) -> None:
        self.before: set[int] = set()
        self.waits = 0
        self.synchronized: set[int] | None = None

    def wait_event(self, event: "Event") -> None:
        self.before |= event.before
        self.waits += 1

    def synchronize(self) -> None:
        self.synchronized = set(self.before)


class Event:
    def __init__(self) -> None:
        self.before: set[int] = set()

    def record(self, stream: Stream) -> None:
        self.before = set(stream.before)


@pytest.fixture
def cuda(monkeypatch):
    """The streams that are current, by device, and the current device."""
    state = types.SimpleNamespace(stream=Stream(), device=0, slow=0)

    class SlowContext:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            self.before, state.stream, state.slow = state.stream, self.stream, state.slow + 1

        def __exit__(self, *error):
            state.stream = self.before

    for name, value in {
        "Stream": Stream,
        "Event": Event,
        "stream": SlowContext,
        "current_stream": lambda index: state.stream,
        "current_device": lambda: state.device,
        "set_stream": lambda stream: setattr(state, "stream", stream),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return state


@pytest.mark.parametrize("seed", range(20))
def test_all_that_a_lane_is_given_is_done_in_its_order(cuda, seed):
    choose = random.Random(seed)
    own, callers = OwnStream(torch.device("cpu")), [Stream() for _ in range(3)]
    for job in range(30):
        cuda.stream = choose.choice(callers)
        cuda.device = choose.randrange(2)
        if choose.random() < 0.4:
            with own.current():
                assert cuda.stream is own.stream
                assert set(range(job)) <= own.stream.before
                own.stream.before.add(job)
        else:
            caller = own.at_caller()
            assert caller is cuda.stream
            assert set(range(job)) <= caller.before
            caller.before.add(job)
        assert cuda.stream in callers
    own.wait()
    assert any(stream.synchronized == set(range(30)) for stream in (own.stream, *callers))


def test_a_caller_that_stays_on_a_stream_never_waits(cuda):
    own = OwnStream(torch.device("cpu"))
    for _ in range(3):
        own.at_caller()
    assert cuda.stream.waits == 1
    with own.current():
        own.at_caller()
    assert own.stream.waits == 1
    assert cuda.stream.waits == 1
    assert cuda.slow == 0


def test_the_callers_stream_is_current_again_after_an_error(cuda):
    own, caller = OwnStream(torch.device("cpu")), cuda.stream
    for cuda.device in (0, 1):
        with pytest.raises(ValueError, match="of a step"), own.current():
            raise ValueError("of a step")
        assert cuda.stream is caller
    assert cuda.slow == 1
