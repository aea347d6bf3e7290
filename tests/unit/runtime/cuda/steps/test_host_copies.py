# SPDX-License-Identifier: Apache-2.0
"""Copies from host memory are made once; the device here is torch's "meta", which has shapes alone."""

import pytest
import torch

from quantrt.errors import InternalError
from quantrt.runtime.cuda.steps.host_copies import RecordCopies, ReuseCopies

META = torch.device("meta")


def work(count: int = 3) -> list[torch.Tensor]:
    """Every spelling of a copy to the device, among calls that are none."""
    host = torch.arange(count)
    there = torch.zeros(2, device=META)
    made = [
        host.to(META),
        host.to("meta", torch.float16),
        host.to(device=META),
        host.to(there),
        torch.tensor([1, 2], device=META),
        torch.as_tensor(host, device="meta"),
        there.new_tensor([1.0]),
    ]
    others = [host.to(torch.float32), there.to(torch.float16), torch.tensor([1]), there + 1, there.to(META)]
    assert others[1].device == META
    return made


def test_a_second_pass_gets_the_copies_of_the_first():
    recorded = RecordCopies()
    with recorded:
        first = work()
    assert [id(x) for x in recorded.copies] == [id(x) for x in first]
    with ReuseCopies(recorded.copies):
        second = work()
    assert [id(x) for x in second] == [id(x) for x in first]
    assert id(work()[0]) != id(first[0])


def test_other_copies_than_the_first_time_are_an_error():
    recorded = RecordCopies()
    with recorded:
        work()
    with pytest.raises(InternalError, match="copies other values"), ReuseCopies(recorded.copies):
        work(4)
    with pytest.raises(InternalError, match="copies other values"), ReuseCopies(recorded.copies[:2]):
        work()
