# SPDX-License-Identifier: Apache-2.0
"""Tactics over rows of which only the first ones count: kernels that can stop behind them do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from quantrt.kernels.live_rows import with_live_rows
from quantrt.regions.region import Attention, Gemm, Rows
from quantrt.runtime.cuda.steps.live_rows import HAS_LIVE_ROWS
from quantrt.tactics.cuda.tactic import LIVE, Draft, Rejected, Tactic, Workload

__all__ = ["even_offsets", "rows_that_count", "stopping", "without_padding"]

Tensor = torch.Tensor

_RUNNERS = {"gemm": Gemm, "gemm_hopper": Gemm, "rows": Rows}
"""Runners whose kernels take the tensors' rows in their order, and the formulas whose rows these are."""


def stopping(listed: list[Tactic | Rejected], formula: object) -> list[Tactic | Rejected]:
    """The tactics of a formula, with kernels that stop behind the last row that counts where there are such.

    The others compute rows that nothing needs; their time tells.
    """
    return [
        replace(one, drafts=tuple(_stopping(draft, formula) for draft in one.drafts))
        if isinstance(one, Tactic)
        else one
        for one in listed
    ]


def rows_that_count(workload: Workload, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Of the workload's outputs, row by row."""
    if workload.live_rows is None:
        return tensors
    axis = 2 if isinstance(workload.formula, Attention) else 1
    return [tensor.transpose(1, axis).flatten(0, 1)[: workload.live_rows] for tensor in tensors]


def without_padding(workload: Workload) -> Workload:
    """The workload over the rows that count alone, samples of attention as long as each other."""
    if workload.live_rows is None:
        return workload
    axis = 2 if isinstance(workload.formula, Attention) else 1
    shape = workload.inputs[0].shape
    B, rows = shape[0], workload.live_rows
    whole, part = ((B, shape[2]), (B, rows // max(B, 1))) if axis == 2 else (shape[:2], (1, rows))
    inputs = [
        replace(facts, shape=(part[0], *facts.shape[1:axis], part[1], *facts.shape[axis + 1 :]))
        if len(facts.shape) > axis and (facts.shape[0], facts.shape[axis]) == tuple(whole)
        else facts
        for facts in workload.inputs
    ]
    return replace(workload, inputs=tuple(inputs), live_rows=None)


def even_offsets(workload: Workload, device: torch.device) -> Tensor:
    """Where samples begin that share the rows that count evenly, as attention reads it."""
    B, S = workload.inputs[0].shape[0], workload.inputs[0].shape[2]
    rows = B * S if workload.live_rows is None else workload.live_rows
    return (torch.arange(B + 1, device=device) * rows // B).to(torch.int32)


def _stopping(draft: Draft, formula: object) -> Draft:
    runs = _RUNNERS.get(draft.runner)
    kernels = [with_live_rows(spec) for spec in draft.kernels]
    stopping_kernels = tuple(spec for spec in kernels if spec is not None)
    if runs is None or not isinstance(formula, runs) or len(stopping_kernels) < len(kernels):
        return draft
    return replace(
        draft,
        inputs=(*draft.inputs, LIVE),
        options={**draft.options, HAS_LIVE_ROWS: True},
        kernels=stopping_kernels,
    )
