# SPDX-License-Identifier: Apache-2.0
"""Rows of tokens in another order. Inputs: x [B, S, ...]; which token each row is to hold, [B * S]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quantrt.plan.program import Step
from quantrt.runtime.cuda.runner import Allocate, Assets, Runner

__all__ = ["as_rows", "open_runner"]

Tensor = torch.Tensor


def open_runner(step: Step, assets: Assets) -> Runner:
    """The runner of one step."""
    return _PackTokensRunner()


def as_rows(x: Tensor, axis: int = 1) -> Tensor:
    """[B * S, ...] of x with samples along axis 0 and their tokens along `axis`; codes of FP8 as bytes."""
    rows = x.transpose(1, axis).flatten(0, 1)
    return rows.view(torch.int8) if rows.dtype == torch.float8_e4m3fn else rows


class _PackTokensRunner:
    def run(self, inputs: Sequence[Any], allocate: Allocate) -> Sequence[Any]:
        """See Runner.run."""
        x, order = inputs
        packed = allocate(0, tuple(x.shape), x.dtype)
        torch.index_select(as_rows(x), 0, order, out=as_rows(packed))
        return [packed]
