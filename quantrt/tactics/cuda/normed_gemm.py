# SPDX-License-Identifier: Apache-2.0
"""Products that normalize the rows they read: our kernel of compute capability 9.0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.gemm_hopper.spec import HopperTile, run_of
from quantrt.kernels.normed_gemm.spec import NormedProblem, kernel_of, why_not
from quantrt.kernels.normed_gemm.tiles import configs
from quantrt.regions.region import NormedGemm
from quantrt.tactics.cuda.gemm import problem_of
from quantrt.tactics.cuda.gemm_draft import gemm_draft
from quantrt.tactics.cuda.product import Product, product_of
from quantrt.tactics.cuda.tactic import Constant, Rejected, Tactic, Workload

__all__ = ["list_tactics"]

_SOURCE = "triton"
_NAME = "normed gemm"


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernel in its tiles; or why there are none."""
    formula = workload.formula
    assert isinstance(formula, NormedGemm)
    product = product_of(replace(workload, formula=formula.product))
    if isinstance(product, str):
        return [Rejected(_SOURCE, _NAME, product)]
    problem = NormedProblem(problem_of(product), formula.epsilon, formula.is_centred)
    reason = why_not(problem, device)
    if reason:
        return [Rejected(_SOURCE, _NAME, reason)]
    return [_tactic(product, problem, tile) for tile in configs(problem, device)]


def _tactic(product: Product, problem: NormedProblem, tile: HopperTile) -> Tactic:
    weight = product.weight_constant(run=run_of(problem.product, tile))
    sums = Constant(f"{weight.key}:sums", lambda: _sums(weight))
    draft = gemm_draft("normed_gemm", product, problem.product, (weight, sums), (kernel_of(problem, tile),))
    name = f"{_NAME} {tile.block_m}x{tile.block_n} s{tile.stages}"
    return Tactic(_SOURCE, name, (draft,))


def _sums(weight: Constant) -> np.ndarray:
    """Of every row as it is multiplied, rounded and in its place."""
    return np.asarray(weight.make().astype(np.float64).sum(1), np.float32)
