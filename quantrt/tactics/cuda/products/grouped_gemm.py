# SPDX-License-Identifier: Apache-2.0
"""Products of halves with a weight in 4 bits by our kernel that reads the codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np

from quantrt.gpu import GpuFacts
from quantrt.kernels.gemm.spec import GemmProblem
from quantrt.kernels.gemm_w4a16.spec import GroupedProblem, by_group, kernel_of, packed, why_not
from quantrt.kernels.gemm_w4a16.tiles import configs
from quantrt.kernels.split_k.spec import SplitConfig, add_kernel_of, parts_bytes
from quantrt.plan.grouped_weight import GroupedWeight
from quantrt.tactics.cuda.products.gemm_draft import gemm_draft
from quantrt.tactics.cuda.products.product import Product
from quantrt.tactics.cuda.tactic import Constant, Rejected, Tactic
from quantrt.tactics.cuda.tiles_of import tiles_of

__all__ = ["list_grouped_tactics"]

_SOURCE = "triton"
_NAME = "gemm w4"


def list_grouped_tactics(product: Product, problem: GemmProblem, device: GpuFacts) -> list[Tactic | Rejected]:
    """The likely fastest first; none of a weight that is no codes of 4 bits."""
    weight = product.workload.groups
    if weight is None:
        return []
    parts = {field.name: getattr(problem, field.name) for field in fields(problem)}
    grouped = GroupedProblem(**parts, group_size=weight.group_size, has_zeros=weight.zero_point is not None)
    reason = why_not(grouped, device)
    if reason:
        return [Rejected(_SOURCE, _NAME, reason)]
    return [_tactic(product, grouped, weight, config) for config in tiles_of(configs, grouped, device)]


def _tactic(product: Product, problem: GroupedProblem, weight: GroupedWeight, config: SplitConfig) -> Tactic:
    weights, kernel = _constants(product, weight, config.tile.block_k), kernel_of(problem, config)
    name = f"{_NAME} {config.tile.name if config.splits == 1 else config.name}"
    if config.splits == 1:
        return Tactic(_SOURCE, name, (gemm_draft("gemm_w4a16", product, problem, weights, (kernel,)),))
    kernels = kernel, add_kernel_of(problem, config)
    draft = gemm_draft("gemm_w4a16", product, problem, weights, kernels)
    draft = replace(draft, outputs=(*draft.outputs, "parts"))
    return Tactic(_SOURCE, name, (draft,), parts_bytes(problem, config))


def _constants(product: Product, weight: GroupedWeight, block_k: int) -> tuple[Constant, ...]:
    """Codes, scales and zero points as the kernel reads them."""

    def in_order(rows: np.ndarray) -> np.ndarray:
        """Of a gate, a row of the left half, then one of the right, and so on."""
        if not product.formula.is_gated:
            return rows
        return rows.reshape(2, product.N, -1).swapaxes(0, 1).reshape(2 * product.N, -1)

    def factors(values: np.ndarray, dtype: str) -> np.ndarray:
        return by_group(in_order(values), block_k, weight.group_size, dtype)

    def constant(kind: str, make: Callable[[], np.ndarray]) -> Constant:
        return Constant(f"{product.formula.weight}:{kind} of blocks of {block_k}", make)

    made = [
        constant("codes", lambda: packed(in_order(weight.rows()), block_k)),
        constant("scales", lambda: factors(weight.scale, "float32")),
    ]
    if weight.zero_point is not None:
        zeros = weight.zero_point
        made.append(constant("zeros", lambda: factors(zeros, "float16")))
    return tuple(made)
