# SPDX-License-Identifier: Apache-2.0
"""Attention by our own kernel, its result stored as floats, as codes, or as both."""

from __future__ import annotations

import math
from typing import Any

from quantrt.dtypes import precision_of
from quantrt.gpu import GpuFacts
from quantrt.kernels.attention.spec import AttentionProblem, TileConfig, kernel_of, why_not
from quantrt.kernels.attention.tiles import configs
from quantrt.regions.region import Attention
from quantrt.tactics.cuda.tactic import Constant, Draft, Rejected, Tactic, TensorFacts, Workload

__all__ = ["float_type", "list_tactics", "options_of", "problem_of", "why_not_scaled"]

_SOURCE = "triton"
_NAME = "attention"
_MAX_UNIT = 16


def list_tactics(
    workload: Workload, formula: Attention, mask: Constant | None, device: GpuFacts
) -> list[Tactic | Rejected]:
    """Our kernel in its tiles, the likely fastest first.

    Args:
        workload: whose shapes fit each other.
        mask: the constant mask as it is added; None where there is none.
    """
    problem = problem_of(workload, formula)
    if isinstance(problem, str):
        return [Rejected(_SOURCE, _NAME, problem)]
    reason = why_not_scaled(formula) or why_not(problem, device)
    if reason is not None:
        return [Rejected(_SOURCE, _NAME, reason)]
    return [_tactic(formula, problem, mask, config) for config in configs(problem, device)]


def why_not_scaled(formula: Attention) -> str | None:
    """Why our kernels cannot scale the scores: they do it behind the search for the largest one."""
    return None if formula.scale > 0.0 else f"a scale of {formula.scale:g}"


def problem_of(workload: Workload, formula: Attention) -> AttentionProblem | str:
    """What our kernel would compute, or why it could not."""
    q, k, v = workload.inputs[:3]
    (_, H, S, D), (_, G, T, E) = q.shape, v.shape
    if D != E:
        return f"heads of {D} in q and of {E} in v"
    dtype = float_type(workload)
    strides = [stride for facts in (q, _keys(k, formula), v) for stride in facts.strides[:3]]
    kind, mask_dtype, has_rows = _mask(workload, formula, dtype)
    return AttentionProblem(
        B=max(facts.shape[0] for facts in (q, k, v)),
        H=H,
        S=S,
        T=T,
        groups=H // G,
        D=D,
        dtype=dtype,
        unit=math.gcd(_MAX_UNIT, D, *(stride for stride in strides if stride)),
        mask=kind,
        mask_dtype=mask_dtype,
        mask_unit=_MAX_UNIT if kind != "none" and (formula.mask_constant or T % _MAX_UNIT == 0) else 1,
        has_mask_rows=has_rows,
        is_causal=formula.is_causal,
        epilogue=formula.epilogue,
        outputs=workload.outputs,
        is_packed=formula.is_packed,
    )


def options_of(formula: Attention, problem: AttentionProblem) -> dict[str, Any]:
    """Of a step: what its runner has to know beside the kernel."""
    return {
        "scale": formula.scale,
        "is_transposed": formula.is_transposed,
        "mask_value": formula.mask_value,
        "dtype": problem.dtype,
        "scalars": [operand.value for operand in problem.epilogue.operands[1:]],
        "outputs": list(problem.outputs),
    }


def float_type(workload: Workload) -> str:
    """What a workload computes in: of its first output that is a float, else of q."""
    floats = [dtype for dtype in workload.outputs if not precision_of(dtype)]
    return floats[0] if floats else workload.inputs[0].dtype


def _keys(k: TensorFacts, formula: Attention) -> TensorFacts:
    """K as [B, G, T, D]."""
    if not formula.is_transposed:
        return k
    swap = (0, 1, 3, 2)
    return TensorFacts(k.dtype, tuple(k.shape[i] for i in swap), tuple(k.strides[i] for i in swap))


def _mask(workload: Workload, formula: Attention, dtype: str) -> tuple[str, str, bool]:
    """Kind, element type, and whether it differs from query to query; a constant is added, always."""
    if formula.mask_constant:
        shape = workload.constants[formula.mask_constant].shape
        return "added", dtype, len(shape) > 1 and shape[-2] > 1
    if not formula.has_mask:
        return "none", "", False
    facts = workload.inputs[3]
    return formula.mask_kind, facts.dtype, len(facts.shape) > 1 and facts.shape[-2] > 1


def _tactic(
    formula: Attention,
    problem: AttentionProblem,
    mask: Constant | None,
    config: TileConfig,
) -> Tactic:
    draft = Draft(
        runner="fused_attention",
        inputs=tuple(f"in{number}" for number in range(3 + formula.has_mask + formula.is_packed)),
        outputs=tuple(f"out{number}" for number in range(len(problem.outputs))),
        options=options_of(formula, problem),
        constants=(mask,) if mask is not None else (),
        kernels=(kernel_of(problem, config),),
    )
    return Tactic(_SOURCE, f"{_NAME} {config.name}", (draft,))
