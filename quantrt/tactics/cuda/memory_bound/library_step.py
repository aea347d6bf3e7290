# SPDX-License-Identifier: Apache-2.0
"""A step of torch that computes a formula, and its epilogue as a kernel over rows behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from quantrt.gpu import GpuFacts
from quantrt.kernels.epilogue.spec import ELEMENT_BYTES
from quantrt.regions.expression import Expression
from quantrt.tactics.cuda.forms.epilogues import as_rows
from quantrt.tactics.cuda.memory_bound.rows_drafts import by_channel, rows_drafts
from quantrt.tactics.cuda.tactic import Draft, Rejected, Tactic, TensorFacts, Workload, dense_strides

__all__ = ["library_tactic", "stored_facts"]

_SOURCE = "torch"
_STORED = "stored"
"""The buffer of what torch computed."""


def library_tactic(
    workload: Workload,
    name: str,
    first: tuple[str, Mapping[str, Any]],
    stored: TensorFacts,
    epilogue: Expression,
    *,
    device: GpuFacts,
    reads: int = 1,
) -> Tactic | Rejected:
    """The step alone where it stores what is wanted; rejected where no kernel computes the epilogue.

    Args:
        first: the step's runner and its options.
        stored: facts of what it stores.
        reads: how many of the workload's inputs it reads; the epilogue reads the others.
    """
    runner, options = first
    inputs = tuple(f"in{i}" for i in range(reads))
    if epilogue.is_identity and workload.outputs == (stored.dtype,):
        return Tactic(_SOURCE, name, (Draft(runner, inputs, ("out0",), options),))
    rest = rows_drafts(
        workload,
        as_rows(epilogue),
        (stored, *workload.inputs[reads:]),
        outputs=workload.outputs,
        names={"in0": _STORED, **{f"in{1 + i}": f"in{reads + i}" for i in range(len(workload.inputs))}},
        device=device,
        constants=by_channel(workload.constants, len(stored.shape) - 2),
    )
    if isinstance(rest, str):
        return Rejected(_SOURCE, name, rest)
    size_bytes = math.prod(stored.shape) * ELEMENT_BYTES[stored.dtype]
    return Tactic(_SOURCE, name, (Draft(runner, inputs, (_STORED,), options), *rest), size_bytes)


def stored_facts(dtype: str, shape: tuple[int, ...]) -> TensorFacts:
    """Of an image that is stored channels last."""
    return TensorFacts(dtype, shape, dense_strides(shape, channels_last=True))
