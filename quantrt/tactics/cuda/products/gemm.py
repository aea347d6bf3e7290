# SPDX-License-Identifier: Apache-2.0
"""Products with a weight: our kernels with the whole epilogue inside, then what cuBLASLt has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from quantrt.gpu import GpuFacts
from quantrt.kernels.gemm.spec import GemmProblem, TileConfig, kernel_of, why_not
from quantrt.kernels.gemm.tiles import configs
from quantrt.kernels.gemm_hopper import spec as hopper
from quantrt.kernels.gemm_hopper import tiles as hopper_tiles
from quantrt.kernels.split_k import spec as split_k
from quantrt.kernels.split_k import tiles as split_k_tiles
from quantrt.tactics.cuda.products import few_rows
from quantrt.tactics.cuda.products.gemm_draft import gemm_draft
from quantrt.tactics.cuda.products.grouped_gemm import list_grouped_tactics
from quantrt.tactics.cuda.products.matmul import list_library_tactics
from quantrt.tactics.cuda.products.product import Product, problem_of, product_of
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["list_tactics"]

_Found = Tactic | Rejected

_SOURCE = "triton"
_NAME = "gemm"
_PARTS = "parts"
"""The buffer of parts of sums."""

_FEW_ROWS = 128
"""Up to these reading the weight takes the time, and one in 4 bits is tried first."""

_BEFORE_SPLIT = 4
"""Tactics that are tried before those that cut sums, for not all may be."""


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernel in its tiles, the likely fastest first, then the library's way.

    For float32, which our kernel multiplies without tensor cores and slowly, the library comes first.
    """
    own, library = _own(workload, device), list_library_tactics(workload, device)
    return [*library, *own] if workload.inputs[0].dtype == "float32" else [*own, *library]


def _own(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    product = product_of(workload)
    if isinstance(product, str):
        return [Rejected(_SOURCE, _NAME, product)]
    problem = problem_of(product)
    reason = why_not(problem, device)
    if reason:
        return [Rejected(_SOURCE, _NAME, reason)]
    whole = [_tactic(product, problem, config) for config in tiles_of(configs, problem, device)]
    if hopper.why_not(problem, device) is None:
        turns = [
            _in_turns(product, problem, tile) for tile in tiles_of(hopper_tiles.configs, problem, device)
        ]
        whole = [*turns, *whole]
    in_parts = () if problem.is_gated else tiles_of(split_k_tiles.configs, problem, device)
    split = [_split(product, problem, config) for config in in_parts]
    few = few_rows.list_tactics(product, problem, device)
    before = _BEFORE_SPLIT // 2 if few else _BEFORE_SPLIT
    floats = _in_turn([*whole[:before], *split, *whole[before:]], few)
    codes = list_grouped_tactics(product, problem, device)
    first, second = (codes, floats) if product.M <= _FEW_ROWS else (floats, codes)
    return _in_turn(first, second)


def _in_turn(first: Sequence[_Found], second: Sequence[_Found]) -> list[_Found]:
    """One of each, and what is left of either."""
    return [tactic for pair in zip_longest(first, second) for tactic in pair if tactic is not None]


def _split(product: Product, problem: GemmProblem, config: split_k.SplitConfig) -> Tactic:
    """Sums in parts, with a second kernel that adds them."""
    assert isinstance(config.tile, TileConfig)
    (draft,) = _tactic(product, problem, config.tile).drafts
    draft = replace(
        draft,
        runner="split_gemm",
        outputs=(*draft.outputs, _PARTS),
        kernels=(split_k.parts_kernel_of(problem, config), split_k.add_kernel_of(problem, config)),
    )
    return Tactic(_SOURCE, f"{_NAME} {config.name}", (draft,), split_k.parts_bytes(problem, config))


def _in_turns(product: Product, problem: GemmProblem, tile: hopper.HopperTile) -> Tactic:
    """One tile is multiplied while another is finished."""
    run = hopper.weight_run_of(problem, tile)
    weight = product.weight_constant(in_turns=problem.is_gated, run=run)
    draft = gemm_draft("gemm_hopper", product, problem, (weight,), (hopper.kernel_of(problem, tile),))
    return Tactic(_SOURCE, f"{_NAME} {tile.name}", (draft,))


def _tactic(product: Product, problem: GemmProblem, config: TileConfig) -> Tactic:
    weight = product.weight_constant(in_turns=problem.is_gated)
    draft = gemm_draft("gemm", product, problem, (weight,), (kernel_of(problem, config),))
    return Tactic(_SOURCE, f"{_NAME} {config.name}", (draft,))
