# SPDX-License-Identifier: Apache-2.0
"""Kernels over rows in front of a library's step or behind it: for what the library does not compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.regions.expression import Expression
from quantrt.regions.region import Rows
from quantrt.tactics.cuda.memory_bound.rows import list_tactics
from quantrt.tactics.cuda.tactic import Draft, Rejected, Tactic, TensorFacts, Workload

__all__ = ["by_channel", "rows_drafts"]


def rows_drafts(
    workload: Workload,
    expression: Expression,
    facts: tuple[TensorFacts, ...],
    *,
    outputs: tuple[str, ...],
    names: Mapping[str, str],
    device: GpuFacts,
    constants: Mapping[str, np.ndarray] | None = None,
) -> tuple[Draft, ...] | str:
    """Drafts of the first rows tactic for a part of a region; why there is none.

    Args:
        workload: of the whole region.
        facts: of the expression's tensors, "in0", "in1", ...
        outputs: element types of what it stores, "out0", "out1", ...
        names: what buffers are called where it is something else.
        constants: the arrays that the expression may read, in the shapes in which it does.
    """
    used = [operand.name for operand in expression.operands if operand.kind == "constant"]
    read = {name: constants[name] for name in used} if constants is not None else {}
    rest = Workload(workload.region, Rows(expression), facts, outputs, None, read)
    found = list_tactics(rest, device, most=1)
    tactic = next((item for item in found if isinstance(item, Tactic)), None)
    if tactic is None:
        reasons = [item.reason for item in found if isinstance(item, Rejected)]
        return f"no kernel for the rest of its epilogue: {'; '.join(reasons)}"
    return tuple(_renamed(draft, names) for draft in tactic.drafts)


def by_channel(constants: Mapping[str, np.ndarray], axes: int) -> dict[str, np.ndarray]:
    """Constants of one number or of one for each channel, as [C, 1, ...] with so many axes behind C."""
    return {
        name: array.reshape(-1, *[1] * axes) if array.size > 1 else array.reshape(())
        for name, array in constants.items()
    }


def _renamed(draft: Draft, names: Mapping[str, str]) -> Draft:
    return replace(
        draft,
        inputs=tuple(names.get(name, name) for name in draft.inputs),
        outputs=tuple(names.get(name, name) for name in draft.outputs),
    )
