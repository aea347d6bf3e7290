# SPDX-License-Identifier: Apache-2.0
"""Calls of modules, taken apart into named tensors and put together again."""

import pytest
import torch
from torch import nn

from quantrt.errors import UsageError
from quantrt.torch.diffusers.calls import CallForm, ResultForm


class Module(nn.Module):
    def forward(self, sample, timestep, extra=None, flag=True, **rest):
        return sample


SAMPLE, TIME = torch.ones(3, 2), torch.tensor(7)


def form(*args, **kwargs) -> CallForm:
    return CallForm.of("unet", Module(), args, kwargs)


def test_tensors_go_by_their_argument_and_the_keys_into_it():
    one = form(SAMPLE, TIME, extra={"ids": SAMPLE, "pair": (SAMPLE, None, TIME)}, flag=False, more=SAMPLE)
    assert list(one.paths) == ["sample", "timestep", "extra.ids", "extra.pair.0", "extra.pair.2", "more"]
    assert one.constants == {("flag",): False}


def test_scalars_become_one_number_per_sample():
    found = form(SAMPLE, TIME).tensors((SAMPLE[:2], TIME), {})
    assert found["timestep"].tolist() == [7, 7]


def test_positional_and_keyword_calls_are_one_form():
    one = form(SAMPLE, timestep=TIME)
    assert one.tensors((), {"sample": SAMPLE, "timestep": TIME}).keys() == {"sample", "timestep"}


def test_arguments_hold_what_was_taken_apart():
    one = form(SAMPLE, TIME, extra={"pair": [SAMPLE, TIME]}, flag=False)
    arguments = one.arguments([SAMPLE, TIME, SAMPLE + 1, TIME + 1])
    assert arguments["flag"] is False
    assert torch.equal(arguments["extra"]["pair"][0], SAMPLE + 1)
    assert arguments["extra"]["pair"][1] == 8


@pytest.mark.parametrize(
    ("args", "kwargs", "named"),
    [
        ((SAMPLE, TIME), {"flag": False}, "'flag'"),
        ((SAMPLE, TIME), {"extra": SAMPLE}, "'extra'"),
        ((SAMPLE, TIME[None]), {"flag": True}, "'timestep'"),
        ((SAMPLE,), {"timestep": 7}, "'timestep'"),
    ],
)
def test_another_form_is_refused_by_name(args, kwargs, named):
    with pytest.raises(UsageError, match=f"was made for other calls: .*{named}"):
        form(SAMPLE, TIME, flag=True).tensors(args, kwargs)


def test_a_call_without_tensors_is_refused():
    with pytest.raises(UsageError, match="called without tensors"):
        form(1, TIME)


class Fields(dict):
    def __init__(self, **fields):
        super().__init__(fields)


@pytest.mark.parametrize(
    "result", [SAMPLE, (SAMPLE,), Fields(last=SAMPLE, all=(SAMPLE, SAMPLE * 2)), [SAMPLE, {"a": SAMPLE * 3}]]
)
def test_results_have_the_containers_that_the_module_returned(result):
    made = ResultForm.of(result)
    tensors = dict(zip(made.paths, ResultForm.tensors(result), strict=True))
    again = made.result(tensors)
    assert type(again) is type(result)
    assert str(again) == str(result)
