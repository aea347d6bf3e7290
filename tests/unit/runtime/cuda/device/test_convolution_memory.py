# SPDX-License-Identifier: Apache-2.0
"""What cuDNN may take of a GPU's memory while it chooses an algorithm; on a CPU, which stands in for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.device.memory_limit import room_limit
from quantrt.runtime.cuda.runner import Assets
from quantrt.runtime.cuda.runners import convolution

OPTIONS = {
    "strides": [1, 1],
    "dilations": [1, 1],
    "pads": [1, 1, 1, 1],
    "groups": 1,
    "dtype": "float32",
    "has_bias": False,
    "has_residual": False,
    "has_relu": False,
    "is_benchmarked": True,
}
GB = 1 << 30


class Rooms:
    """Takes the place of `room_limit`: writes down what was asked for, and is short of memory if it shall."""

    def __init__(self, *, is_short: bool = False) -> None:
        self.asked: list[int] = []
        self.is_short = is_short

    @contextmanager
    def __call__(self, room_bytes: int) -> Iterator[None]:
        self.asked.append(room_bytes)
        if self.is_short:
            raise torch.OutOfMemoryError("tried to allocate 109 GB")
        yield


def runner(monkeypatch: pytest.MonkeyPatch, rooms: Rooms):
    monkeypatch.setattr(convolution, "room_limit", rooms)
    weight = torch.ones(4, 3, 3, 2)
    step = Step("convolution", "region", ("x",), ("y",), weights=("w",), options=OPTIONS)
    return convolution.open_runner(step, Assets(torch.device("cuda"), {"w": weight}, {}))


@pytest.mark.parametrize("is_short", [False, True])
def test_the_first_run_of_each_shape_is_bounded(monkeypatch: pytest.MonkeyPatch, is_short: bool):
    rooms = Rooms(is_short=is_short)
    found = runner(monkeypatch, rooms)
    x = torch.ones(1, 2, 5, 5)
    for batch, asked in ((1, 1), (1, 1), (2, 2), (1, 2)):
        (y,) = found.run([x.expand(batch, -1, -1, -1)], lambda *args, **options: None)
        assert y.shape == (batch, 4, 5, 5)
        assert y[0, 0, 2, 2] == 18.0
        assert rooms.asked == [convolution.WORKSPACE_BYTES] * asked


def test_torch_has_so_much_more_meanwhile_and_what_it_had_afterwards(monkeypatch: pytest.MonkeyPatch):
    fractions = [0.5]
    properties = type("Properties", (), {"total_memory": 80 * GB})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: fractions[-1])
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 20 * GB)
    with pytest.raises(ValueError, match="whatever"), room_limit(2 * GB):
        raise ValueError("whatever")
    assert fractions == [0.5, 22 / 80, 0.5]
    with room_limit(30 * GB):
        assert fractions[-1] == 0.5, "no more than there was"
