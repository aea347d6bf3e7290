# SPDX-License-Identifier: Apache-2.0
"""Convolutions of repeated pixels for tests, with their reference."""

from dataclasses import replace

import torch

from quantrt.regions.expression import IDENTITY
from quantrt.regions.region import Resize, ResizedConv
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.tactic import Workload
from tests.kernels.convolutions.cases import Problem

__all__ = ["expected", "resized"]


def resized(problem: Problem, repeats: tuple[int, int], **changes) -> Workload:
    """The workload whose convolution reads the problem's x with its pixels repeated."""
    workload = problem.workload()
    resize = Resize(("resize", 0), True, tuple(map(float, repeats)), False, IDENTITY)
    return replace(workload, formula=ResizedConv(resize, workload.formula), **changes)


def expected(problem: Problem, repeats: tuple[int, int]) -> list[torch.Tensor]:
    """By the problem's own convolution of what torch repeats."""
    x = problem.x.repeat_interleave(repeats[0], 2).repeat_interleave(repeats[1], 3)
    workload = problem.workload()
    constants = {name: torch.from_numpy(array) for name, array in problem.constants.items()}
    weight = torch.from_numpy(problem.weight)
    weight = weight if problem.x.dtype == torch.int8 else weight.to(problem.x.dtype)
    return compute(workload.formula, [x, *problem.tensors], problem.outputs, weight, constants)
