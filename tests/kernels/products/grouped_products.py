# SPDX-License-Identifier: Apache-2.0
"""Products of halves with weights in 4 bits, for tests of what is computed and of what is compiled."""

from dataclasses import fields

import numpy as np
import torch

from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_w4a16.spec import GroupedProblem
from quantrt.regions.expression import Expression
from quantrt.regions.region import Gemm
from quantrt.tactics.cuda.tactic import Workload
from tests.kernels.run_tactic import facts_of


def grouped(problem: GemmProblem, group_size: int, *, has_zeros: bool = False) -> GroupedProblem:
    """The same product with a weight in 4 bits."""
    parts = {field.name: getattr(problem, field.name) for field in fields(problem)}
    return GroupedProblem(**parts, group_size=group_size, has_zeros=has_zeros)


def grouped_weight(
    rng: np.random.Generator, K: int, N: int, group_size: int, *, has_zeros: bool = False
) -> np.ndarray:
    """float32 [K, N]: codes less zero points, times scales of either sign."""
    groups = -(-K // group_size)
    zeros = rng.integers(0, 16, (groups, N)) if has_zeros else np.full((groups, N), 8)
    scale = rng.uniform(0.01, 0.03, (groups, N)) * rng.choice([-1, 1], (groups, N))
    codes = rng.integers(0, 16, (K, N))
    zeros, scale = (np.repeat(array, group_size, axis=0)[:K] for array in (zeros, scale))
    return np.asarray((codes - zeros).astype(np.float32) * scale.astype(np.float32), np.float32)


def workload_of(
    epilogue: Expression,
    inputs: list[torch.Tensor],
    weight: np.ndarray,
    outputs: tuple[str, ...],
    *,
    is_gated: bool = False,
    is_transposed: bool = False,
    **constants: np.ndarray,
) -> Workload:
    formula = Gemm(("n", 0), ("n", 1), "w", is_transposed, epilogue, is_gated)
    array = np.ascontiguousarray(weight.T) if is_transposed else weight
    return Workload("region", formula, tuple(map(facts_of, inputs)), outputs, array, constants)
