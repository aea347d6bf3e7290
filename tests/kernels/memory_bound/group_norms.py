# SPDX-License-Identifier: Apache-2.0
"""Norms over groups of channels for tests: a formula with its input, its workload and its reference."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from quantrt.gpu import gpu_named
from quantrt.regions.expression import IDENTITY, Expression, Operand
from quantrt.regions.region import GroupNorm
from quantrt.tactics.cuda.tactic import Tactic
from tests.kernels import problems
from tests.kernels.convolutions.cases import channels_last
from tests.kernels.memory_bound.expressions import Builder, constant, scalar

H200 = gpu_named("H200")
NORMAL = Operand("accumulator")


@dataclass(frozen=True)
class Case:
    """A norm of x [images, C, *size] in groups."""

    C: int = 20
    groups: int = 4
    size: tuple[int, ...] = (7, 9)
    images: int = 2

    @property
    def id(self) -> str:
        return f"{self.images}x{self.C}x{'x'.join(map(str, self.size))}g{self.groups}"

    def formula(self, epilogue: Expression = IDENTITY) -> GroupNorm:
        return GroupNorm(("norm", 0), None, self.groups, self.C, 1e-5, epilogue)


class Problem(problems.Problem):
    """A norm with numbers."""

    def one_of_each(self) -> list[Tactic]:
        """The first tactic over whole groups and the first in parts."""
        found = self.tactics()
        return [next(x for x in found if kind in x.name.split()) for kind in ("whole", "parts")]


def problem_of(case: Case, dtype: torch.dtype, rng: np.random.Generator, **changes) -> Problem:
    """Nothing follows the norm; it is stored in float32."""
    x = torch.from_numpy(rng.standard_normal((case.images, case.C, *case.size)).astype(np.float32))
    return replace(Problem(case.formula(), channels_last(x.to(dtype))), **changes)


def silu_to_codes(*, has_floats: bool = False) -> Expression:
    """Scale and bias of every channel, SiLU, codes; floats too, where they are asked for."""
    b = Builder(NORMAL, constant("gamma"), constant("beta"), scalar(0.02))
    y = b("add", b("mul", 0, 1), 2)
    y = b("mul", y, b("sigmoid", y))
    codes = b("quantize", y, 3)
    return b.build(y, codes) if has_floats else b.build(codes)


def affine_of(channels: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: rng.standard_normal((channels, 1, 1)).astype(np.float32) for name in ("gamma", "beta")}
