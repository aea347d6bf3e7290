# SPDX-License-Identifier: Apache-2.0
"""Convolutions for tests: a case with its tensors and its reference, and tactics run on the CPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch

from quantrt.regions.expression import IDENTITY, Expression
from quantrt.regions.region import Conv
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.tactic import Tactic, TensorFacts, Workload
from quantrt.tactics.cuda.timing.check import check, poison
from quantrt.tactics.cuda.timing.open_tactic import OpenTactic

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """One convolution: x [images, C, *size], weight [N, C / groups, *kernel]."""

    C: int = 8
    N: int = 16
    size: tuple[int, ...] = (7, 9)
    kernel: tuple[int, ...] = (3, 3)
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (1, 1, 1, 1)
    dilations: tuple[int, ...] = (1, 1)
    images: int = 2
    groups: int = 1

    @property
    def id(self) -> str:
        letters = "x".join(map(str, self.size)), "x".join(map(str, self.kernel))
        shape = f"{self.images}x{self.C}x{letters[0]} {self.N}x{letters[1]}"
        return f"{shape} s{self.strides} p{self.pads} d{self.dilations} g{self.groups}".replace(" ", "")

    @property
    def output(self) -> tuple[int, ...]:
        half = len(self.size)
        return tuple(
            (self.size[i] + self.pads[i] + self.pads[half + i] - self.dilations[i] * (self.kernel[i] - 1) - 1)
            // self.strides[i]
            + 1
            for i in range(half)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.images, self.N, *self.output)


@dataclass
class Problem:
    """A case with numbers."""

    case: Case
    epilogue: Expression
    x: torch.Tensor
    weight: np.ndarray
    tensors: Sequence[torch.Tensor] = ()
    outputs: tuple[str, ...] = ("float32",)
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def inputs(self) -> list[torch.Tensor]:
        return [self.x, *self.tensors]

    def workload(self) -> Workload:
        case = self.case
        edges = ("conv", 0), ("conv", 1)
        formula = Conv(*edges, "weight", case.strides, case.dilations, case.pads, case.groups, self.epilogue)
        facts = tuple(
            TensorFacts(str(x.dtype).removeprefix("torch."), tuple(x.shape), x.stride()) for x in self.inputs
        )
        return Workload("region", formula, facts, self.outputs, self.weight, self.constants)

    def expected(self) -> list[torch.Tensor]:
        workload = self.workload()
        constants = {name: torch.from_numpy(array) for name, array in self.constants.items()}
        weight = torch.from_numpy(self.weight)
        if self.x.dtype == torch.float16:  # what every float16 engine multiplies by
            weight = weight.half()
        return compute(workload.formula, self.inputs, self.outputs, weight, constants)


def codes(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    return rng.integers(-128, 128, tuple(shape), dtype=np.int8)


def integer_problem(case: Case, rng: np.random.Generator) -> Problem:
    """Codes in, the sums themselves out."""
    weight = np.maximum(codes(rng, (case.N, case.C // case.groups, *case.kernel)), -127)
    x = torch.from_numpy(codes(rng, (case.images, case.C, *case.size)))
    return Problem(case, IDENTITY, channels_last(x), weight)


def float_problem(case: Case, rng: np.random.Generator, dtype: torch.dtype = torch.float16) -> Problem:
    """Floats in, the sums out."""
    weight = rng.standard_normal((case.N, case.C // case.groups, *case.kernel)).astype(np.float32)
    weight /= np.float32(np.sqrt(weight[0].size))
    x = torch.from_numpy(rng.standard_normal((case.images, case.C, *case.size)).astype(np.float32))
    name = str(dtype).removeprefix("torch.")
    return Problem(case, IDENTITY, channels_last(x.to(dtype)), weight, outputs=(name,))


def with_epilogue(
    problem: Problem, rng: np.random.Generator, epilogue: Expression, **changes: Any
) -> Problem:
    """The problem with an epilogue whose constants "scale" and "bias" are drawn here."""
    N = problem.case.N
    taps = problem.weight[0].size
    scale = (rng.random(N) + 0.5).astype(np.float32) / np.float32(taps**0.5 * 5000)
    bias = rng.standard_normal(N).astype(np.float32)
    constants = {"scale": scale, "bias": bias.reshape(N, *[1] * len(problem.case.size))}
    used = {x.name for x in epilogue.operands}
    kept = {name: array for name, array in constants.items() if name in used}
    return replace(problem, epilogue=epilogue, constants=kept, **changes)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """The same elements with the second axis innermost in memory."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def run(tactic: Tactic, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a tactic on the CPU; what it does not write is poison."""
    with OpenTactic(tactic, "region", {}, CPU, weights={}, fill=poison) as opened:
        return opened.run(inputs)


class Compared(Protocol):
    """A problem of any operator."""

    @property
    def inputs(self) -> list[torch.Tensor]: ...

    def workload(self) -> Workload: ...

    def expected(self) -> list[torch.Tensor]: ...


def agrees(problem: Compared, tactic: Tactic) -> None:
    """Check a tactic's outputs against the reference: their values, and channels innermost in memory."""
    outputs = run(tactic, problem.inputs)
    assert check(problem.workload(), tactic, outputs, problem.expected()) is None
    assert [y.stride() for y in outputs] == [channels_last(y).stride() for y in outputs]


def retiled(tactic: Tactic, **constants: Any) -> Tactic:
    """The tactic of one kernel with other constants, such as BLOCK_M."""
    (draft,) = tactic.drafts
    (spec,) = draft.kernels
    changed = tuple((name, constants.get(name, value)) for name, value in spec.constants)
    return replace(tactic, drafts=(replace(draft, kernels=(replace(spec, constants=changed),)),))
