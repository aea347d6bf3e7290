# SPDX-License-Identifier: Apache-2.0
"""Random inputs for a workload, in the shapes and strides that it is timed at."""

from __future__ import annotations

import torch

from quantrt.regions.region import Attention, Rows
from quantrt.runtime.cuda.tensors import torch_dtype
from quantrt.tactics.cuda.padding.live_rows import even_offsets
from quantrt.tactics.cuda.tactic import TensorFacts, Workload

__all__ = ["random_inputs"]

SEED = 0

FP8_TYPE = torch.float8_e4m3fn
FP8_STEP = 100.0
"""Standard deviation of FP8 codes: 448 is that of 4.5, about the largest of a hundred thousand."""


def random_inputs(workload: Workload, device: torch.device) -> list[torch.Tensor]:
    """One tensor per input, always the same.

    int8 codes are uniform in -128..127, FP8 codes normal with a largest of about 448, numbers of a table's
    rows among these, floats normal, bools fair; samples without padding are all as long.
    """
    generator = torch.Generator(device).manual_seed(SEED)
    rows = _table_rows(workload)
    found = [_tensor(facts, generator, rows.get(number, 2)) for number, facts in enumerate(workload.inputs)]
    if isinstance(workload.formula, Attention) and workload.formula.is_packed:
        found[3] = even_offsets(workload, device)
    return found


def _table_rows(workload: Workload) -> dict[int, int]:
    """How many rows the tables have that an input numbers."""
    if not isinstance(workload.formula, Rows):
        return {}
    operands = workload.formula.expression.operands
    tensors = [number for number, operand in enumerate(operands) if operand.kind == "tensor"]
    return {
        tensors.index(index): len(workload.constants[operands[table].name])
        for table, index in workload.formula.expression.lookups.items()
    }


def _tensor(facts: TensorFacts, generator: torch.Generator, count: int) -> torch.Tensor:
    spans = zip(facts.shape, facts.strides, strict=True)
    size = 1 + sum((length - 1) * stride for length, stride in spans) if 0 not in facts.shape else 0
    values = _values(size, torch_dtype(facts.dtype), generator, count)
    return values.as_strided(facts.shape, facts.strides)


def _values(size: int, dtype: torch.dtype, generator: torch.Generator, count: int) -> torch.Tensor:
    """Numbers of a type; of plain integers 0 to count - 1."""
    device = generator.device
    if dtype.is_floating_point:
        normal = torch.randn(size, generator=generator, device=device)
        return (
            normal.mul_(FP8_STEP).clamp_(-448.0, 448.0).to(dtype) if dtype == FP8_TYPE else normal.to(dtype)
        )
    low, high = (-128, 128) if dtype == torch.int8 else (0, count)
    return torch.randint(low, high, (size,), generator=generator, device=device).to(dtype)
