# SPDX-License-Identifier: Apache-2.0
"""ReLU linear attention by our kernel, in a few tiles, and by products of cuBLASLt in float32."""

from __future__ import annotations

from dataclasses import replace

from quantrt.gpu import GpuFacts
from quantrt.kernels.linear_attention import spec
from quantrt.regions.region import LinearAttention
from quantrt.tactics.cuda.tactic import Draft, Rejected, Tactic, Workload

__all__ = ["list_tactics"]

_SOURCE = "triton"
_LIBRARY = "cublaslt"
_NAME = "linear attention"


def list_tactics(workload: Workload, device: GpuFacts) -> list[Tactic | Rejected]:
    """Our kernel, its likely fastest tile first, then the library's products.

    Each tile comes with a kernel for heads that lie in one piece, and one for any.
    """
    formula = workload.formula
    if not isinstance(formula, LinearAttention):
        return [Rejected(_SOURCE, _NAME, f"the formula is {type(formula).__name__}, not LinearAttention")]
    q, k, v = workload.inputs
    problem = spec.LinearProblem(
        D=q.shape[-1],
        E=v.shape[-1],
        dtypes=(q.dtype, k.dtype, v.dtype, workload.outputs[0]),
        epsilon=formula.epsilon,
    )
    reason = spec.why_not(problem, device)
    if reason is not None:
        return [Rejected(_SOURCE, _NAME, reason), _products(workload, problem)]
    ours = [_tactic(workload, problem, tile) for tile in spec.configs(problem)]
    return [*ours, _products(workload, problem)]


def _products(workload: Workload, problem: spec.LinearProblem) -> Tactic:
    return Tactic(_LIBRARY, f"{_NAME} by products", (_draft(workload, problem),))


def _tactic(workload: Workload, problem: spec.LinearProblem, tile: spec.TileConfig) -> Tactic:
    kernels = tuple(spec.kernel_of(problem, tile, is_dense=is_dense) for is_dense in (True, False))
    draft = replace(_draft(workload, problem), kernels=kernels)
    return Tactic(_SOURCE, f"{_NAME} {tile.name}", (draft,))


def _draft(workload: Workload, problem: spec.LinearProblem) -> Draft:
    options = {
        "heads": [problem.D, problem.E],
        "outputs": list(workload.outputs),
        "epsilon": problem.epsilon,
    }
    return Draft("linear_attention", ("in0", "in1", "in2"), ("out0",), options)
