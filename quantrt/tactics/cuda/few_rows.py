# SPDX-License-Identifier: Apache-2.0
"""Products of few rows by our kernel of compute capability 9.0, which can normalize these rows as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.few_rows.spec import LAYER, RMS, FewRowsProblem, kernel_of, why_not
from quantrt.kernels.few_rows.tiles import MAX_ROWS, configs
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_hopper.spec import HopperTile, weight_run_of
from quantrt.regions.region import NormedGemm
from quantrt.tactics.cuda.gemm_draft import gemm_draft
from quantrt.tactics.cuda.product import Product, problem_of, product_of
from quantrt.tactics.cuda.tactic import Constant, Rejected, Tactic, Workload

__all__ = ["list_normed_tactics", "list_tactics"]

_SOURCE = "triton"
_NAME = "few rows"


def list_tactics(product: Product, problem: GemmProblem, device: GpuFacts) -> list[Tactic]:
    """The kernel in its tiles, for a product that has few rows."""
    found = FewRowsProblem(problem)
    if product.M > MAX_ROWS or why_not(found, device):
        return []
    return [_tactic(product, found, tile) for tile in configs(found, device)]


def list_normed_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """The same for a product of normalized rows; or why there are none."""
    formula = workload.formula
    assert isinstance(formula, NormedGemm)
    product = product_of(replace(workload, formula=formula.product))
    if isinstance(product, str):
        return [Rejected(_SOURCE, _NAME, product)]
    norm = LAYER if formula.is_centred else RMS
    problem = FewRowsProblem(problem_of(product), norm, formula.epsilon)
    reason = why_not(problem, device)
    if reason:
        return [Rejected(_SOURCE, _NAME, reason)]
    return [_tactic(product, problem, tile) for tile in configs(problem, device)]


def _tactic(product: Product, problem: FewRowsProblem, tile: HopperTile) -> Tactic:
    is_gated, run = problem.product.is_gated, weight_run_of(problem.product, tile)
    weight = product.weight_constant(in_turns=is_gated, run=run)
    sums = (Constant(f"{weight.key}:sums", lambda: _sums(weight)),) if problem.norm else ()
    draft = gemm_draft("few_rows", product, problem.product, (weight, *sums), (kernel_of(problem, tile),))
    name = f"{_NAME} {tile.block_m}x{tile.block_n} s{tile.stages}"
    return Tactic(_SOURCE, f"{name} normed" if problem.norm else name, (draft,))


def _sums(weight: Constant) -> np.ndarray:
    """Of every row as it is multiplied, rounded and in its place."""
    return np.asarray(weight.make().astype(np.float64).sum(1), np.float32)
