# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of a batch go when its padding is taken out. Input: a mask [B, S], not 0 for a token.

Outputs, int32, counting tokens and rows sample by sample:

    order [B * S]    which token each row holds: those of the mask in their order, then the others in theirs
    places [B * S]   in which row each token is
    offsets [B + 1]  the row in which each sample begins, and the end of the last
    count [1]        how many tokens the mask has
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.errors import DataError
from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner

__all__ = ["open_runner"]


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _TokenIndexRunner(assets.device)


class _TokenIndexRunner:
    def __init__(self, device: torch.device) -> None:
        self._device = device

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        mask = inputs[0].to(self._device)
        if mask.dim() != 2:
            raise DataError("cannot take out padding", got=f"a mask of {list(mask.shape)}", expected="[B, S]")
        B, S = mask.shape
        order, places = (allocate(number, (B * S,), torch.int32) for number in range(2))
        offsets, count = allocate(2, (B + 1,), torch.int32), allocate(3, (1,), torch.int32)
        is_token = mask.reshape(-1) != 0
        numbers = torch.arange(B * S, dtype=torch.int32, device=self._device)
        before = torch.cumsum(is_token, 0, dtype=torch.int32)  # the token itself counts
        offsets[:1].zero_()
        offsets[1:].copy_(before.view(B, S)[:, -1])
        count.copy_(offsets[B:])
        places.copy_(torch.where(is_token, before - 1, count + numbers - before))
        order.scatter_(0, places.long(), numbers)
        return [order, places, offsets, count]
