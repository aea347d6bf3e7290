# SPDX-License-Identifier: Apache-2.0
"""Tensors side by side: our kernel in a few tiles, then torch's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.concat import spec, tiles
from quantrt.kernels.kernel import KernelSpec
from quantrt.kernels.rows.walk import View
from quantrt.regions.region import Concat
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload, whole_draft

__all__ = ["list_tactics"]

_SOURCE = "triton"
_LIBRARY = "torch"
_NAME = "concat"


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernel, the likely fastest tile first, each with one for any sizes; then torch's."""
    formula = workload.formula
    if not isinstance(formula, Concat):
        return [Rejected(_SOURCE, _NAME, f"the formula is {type(formula).__name__}, not Concat")]
    return [*_own(workload, formula, device), _tactic(workload, formula, _LIBRARY, _NAME, ())]


def _own(workload: Workload, formula: Concat, device: GpuFacts) -> list[Tactic | Rejected]:
    reason = _why_not(workload, formula)
    if reason is not None:
        return [Rejected(_SOURCE, _NAME, reason)]
    item_bytes = np.dtype(workload.outputs[0]).itemsize
    runs = _runs(workload, formula)
    word_bytes = spec.word_bytes_of(runs, item_bytes)
    words = [run.in_words(item_bytes, word_bytes) for run in runs]
    found: list[Tactic | Rejected] = []
    for tile in tiles.configs(words, device):
        kernels = dict.fromkeys(
            spec.kernel_of(len(runs), size, tile, is_aligned=is_aligned)
            for size, is_aligned in (
                (word_bytes, spec.is_aligned(words)),
                (word_bytes, False),
                (item_bytes, False),
            )
        )
        found.append(_tactic(workload, formula, _SOURCE, f"{_NAME} {tile.name}", tuple(kernels)))
    return found


def _why_not(workload: Workload, formula: Concat) -> str | None:
    count, ranks = len(workload.inputs), {len(facts.shape) for facts in workload.inputs}
    if count > spec.MAX_INPUTS:
        return f"{count} inputs: at most {spec.MAX_INPUTS}"
    if len(ranks) != 1 or not -min(ranks) <= formula.axis < min(ranks):
        return f"inputs of {sorted(ranks)} axes"
    if any(facts.dtype != workload.outputs[0] for facts in workload.inputs):
        return "inputs of different types"
    return None


def _runs(workload: Workload, formula: Concat) -> Sequence[spec.Run]:
    """The inputs as rows; those that lie otherwise as the copies that the runner makes of them."""
    views = [View(facts.shape, facts.strides) for facts in workload.inputs]
    order = spec.joined_order(views)
    axis = formula.axis % len(order)
    return [spec.run_of(view, order, axis) or spec.copied_run(view, order, axis) for view in views]


def _tactic(
    workload: Workload, formula: Concat, source: str, name: str, kernels: tuple[KernelSpec, ...]
) -> Tactic:
    draft = whole_draft("concat", workload, {"axis": formula.axis}, kernels=kernels)
    return Tactic(source, name, (draft,))
