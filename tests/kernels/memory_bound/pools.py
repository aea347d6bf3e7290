# SPDX-License-Identifier: Apache-2.0
"""Pools for tests: a formula with its input, its workload and its reference."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from quantrt.gpu import gpu_named
from quantrt.regions.expression import IDENTITY, Expression
from quantrt.regions.region import Pool
from tests.kernels import problems
from tests.kernels.convolutions.cases import channels_last

H200 = gpu_named("H200")


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

    def formula(self, kind: str, epilogue: Expression = IDENTITY) -> Pool:
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


class Problem(problems.Problem):
    """A pool with numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the outputs."""
        return self.formula.output_shape(tuple(self.x.shape))


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
