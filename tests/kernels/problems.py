# SPDX-License-Identifier: Apache-2.0
"""A formula with numbers, for tests of its tactics: its workload, its reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from quantrt.gpu import gpu_named
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.tactic import REFERENCE, Tactic, Workload
from tests.kernels.run_tactic import facts_of

__all__ = ["H200", "Problem"]

H200 = gpu_named("H200")


@dataclass
class Problem:
    """What a region computes, of x and of the tensors that its epilogue reads."""

    formula: Any
    x: torch.Tensor
    weight: np.ndarray | None = None
    tensors: Sequence[torch.Tensor] = ()
    outputs: tuple[str, ...] = ("float32",)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def inputs(self) -> list[torch.Tensor]:
        return [self.x, *self.tensors]

    def workload(self) -> Workload:
        facts = tuple(facts_of(x) for x in self.inputs)
        return Workload("region", self.formula, facts, self.outputs, self.weight, self.constants)

    def expected(self) -> list[torch.Tensor]:
        """By the reference; float weights in the type of x, as every engine multiplies by them."""
        constants = {name: torch.from_numpy(array) for name, array in self.constants.items()}
        weight = None if self.weight is None else torch.from_numpy(self.weight)
        if weight is not None and weight.is_floating_point():
            weight = weight.to(self.x.dtype)
        return compute(self.formula, self.inputs, self.outputs, weight, constants)

    def tactics(self, source: str = "triton") -> list[Tactic]:
        """Those of one source, the reference not among them; there are some, and none is rejected."""
        rows = list_tactics(self.workload(), H200)
        found = [row for row in rows if row.source == source and row.name != REFERENCE]
        assert found
        assert all(isinstance(row, Tactic) for row in found), found
        return found
