# SPDX-License-Identifier: Apache-2.0
"""Pools for tests: a formula with its input, its workload and its reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression, Operand
from quantrt.regions.region import Pool
from quantrt.runtime.cuda.compute import compute
from quantrt.tactics.cuda.pool import list_tactics
from quantrt.tactics.cuda.tactic import Tactic, Workload
from tests.kernels.convolutions import channels_last
from tests.kernels.run_tactic import facts_of

H200 = gpu_named("H200")
POOLED = Expression((Operand("accumulator"),), (), (0,), (False,))


@dataclass(frozen=True)
class Case:
    """A pool of x [images, C, *size]; over whole images without a kernel."""

    C: int = 16
    size: tuple[int, ...] = (7, 9)
    kernel: tuple[int, ...] = (3, 3)
    strides: tuple[int, ...] = (2, 2)
    pads: tuple[int, ...] = (1, 1, 1, 1)
    dilations: tuple[int, ...] = (1, 1)
    images: int = 2
    has_ceil: bool = False
    counts_padding: bool = False
    keeps_axes: bool = True

    @property
    def id(self) -> str:
        texts = [
            f"{self.images}x{self.C}",
            "x".join(map(str, self.size)),
            "k" + "x".join(map(str, self.kernel)),
        ]
        texts += [f"s{self.strides}", f"p{self.pads}", f"d{self.dilations}"] if self.kernel else []
        flags = "ceil" * self.has_ceil + " padding" * self.counts_padding + " flat" * (not self.keeps_axes)
        return " ".join([*texts, flags]).replace(" ", "")

    def formula(self, kind: str, epilogue: Expression = POOLED) -> Pool:
        return Pool(
            x=("pool", 0),
            kind=kind,
            kernel=self.kernel,
            strides=self.strides if self.kernel else (),
            dilations=self.dilations if self.kernel else (),
            pads=self.pads if self.kernel else (),
            has_ceil=self.has_ceil,
            counts_padding=self.counts_padding,
            is_global=not self.kernel,
            keeps_axes=self.keeps_axes,
            epilogue=epilogue,
        )


@dataclass
class Problem:
    """A pool with numbers."""

    formula: Pool
    x: torch.Tensor
    tensors: Sequence[torch.Tensor] = ()
    outputs: tuple[str, ...] = ("float32",)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def inputs(self) -> list[torch.Tensor]:
        return [self.x, *self.tensors]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the outputs."""
        return self.formula.output_shape(tuple(self.x.shape))

    def workload(self) -> Workload:
        facts = tuple(facts_of(x) for x in self.inputs)
        return Workload("region", self.formula, facts, self.outputs, None, self.constants)

    def expected(self) -> list[torch.Tensor]:
        constants = {name: torch.from_numpy(array) for name, array in self.constants.items()}
        return compute(self.formula, self.inputs, self.outputs, None, constants)

    def tactics(self, source: str) -> list[Tactic]:
        found = [row for row in list_tactics(self.workload(), H200) if row.source == source]
        assert found
        assert all(isinstance(row, Tactic) for row in found), found
        return found


def problem_of(case: Case, kind: str, dtype: torch.dtype, rng: np.random.Generator) -> Problem:
    """What is pooled is what is stored: codes where maxima of codes are, float32 for the rest."""
    shape = (case.images, case.C, *case.size)
    if dtype == torch.int8:
        x = torch.from_numpy(rng.integers(-128, 128, shape, dtype=np.int8))
    else:
        x = torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype)
    stored = "int8" if dtype == torch.int8 and kind == "max" else "float32"
    return Problem(case.formula(kind), channels_last(x), outputs=(stored,))


def with_epilogue(problem: Problem, epilogue: Expression, **changes) -> Problem:
    return replace(problem, formula=replace(problem.formula, epilogue=epilogue), **changes)
