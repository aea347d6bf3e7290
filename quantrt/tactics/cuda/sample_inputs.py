# SPDX-License-Identifier: Apache-2.0
"""Random inputs for a workload, in the shapes and strides that it is timed at."""

from __future__ import annotations

import torch

from quantrt.runtime.cuda.tensors import torch_dtype
from quantrt.tactics.cuda.tactic import TensorFacts, Workload

__all__ = ["random_inputs"]

SEED = 0


def random_inputs(workload: Workload, device: torch.device) -> list[torch.Tensor]:
    """One tensor per input, always the same: codes uniform in -128..127, floats normal, bools fair."""
    generator = torch.Generator(device).manual_seed(SEED)
    return [_tensor(facts, generator) for facts in workload.inputs]


def _tensor(facts: TensorFacts, generator: torch.Generator) -> torch.Tensor:
    spans = zip(facts.shape, facts.strides, strict=True)
    size = 1 + sum((length - 1) * stride for length, stride in spans) if 0 not in facts.shape else 0
    return _values(size, torch_dtype(facts.dtype), generator).as_strided(facts.shape, facts.strides)


def _values(size: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    device = generator.device
    if dtype.is_floating_point:
        return torch.randn(size, generator=generator, device=device).to(dtype)
    low, high = (-128, 128) if dtype == torch.int8 else (0, 2)
    return torch.randint(low, high, (size,), generator=generator, device=device).to(dtype)
