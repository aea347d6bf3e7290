# SPDX-License-Identifier: Apache-2.0
"""Products of few rows by our kernel of compute capability 9.0."""

from __future__ import annotations

from quantrt.gpu import GpuFacts
from quantrt.kernels.few_rows.spec import kernel_of
from quantrt.kernels.few_rows.tiles import MAX_ROWS, configs
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_hopper.spec import HopperTile, weight_run_of, why_not
from quantrt.tactics.cuda.products.gemm_draft import gemm_draft
from quantrt.tactics.cuda.products.product import Product
from quantrt.tactics.cuda.tactic import Tactic

__all__ = ["list_tactics"]

_SOURCE = "triton"
_NAME = "few rows"


def list_tactics(product: Product, problem: GemmProblem, device: GpuFacts) -> list[Tactic]:
    """The kernel in its tiles, for a product that has few rows."""
    if product.M > MAX_ROWS or why_not(problem, device):
        return []
    return [_tactic(product, problem, tile) for tile in configs(problem, device)]


def _tactic(product: Product, problem: GemmProblem, tile: HopperTile) -> Tactic:
    weight = product.weight_constant(in_turns=problem.is_gated, run=weight_run_of(problem, tile))
    draft = gemm_draft("few_rows", product, problem, (weight,), (kernel_of(problem, tile),))
    return Tactic(_SOURCE, f"{_NAME} {tile.block_m}x{tile.block_n} s{tile.stages}", (draft,))
