# SPDX-License-Identifier: Apache-2.0
"""Attention over codes that a step before it makes, in Triton: where the kernel for 9.0 is not to be had."""

from __future__ import annotations

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_coded.spec import CodedAttention, kernel_of, why_not
from quantrt.kernels.attention_coded.tiles import configs
from quantrt.kernels.attention_hopper import spec as hopper
from quantrt.regions.region import Attention
from quantrt.tactics.cuda.attention.fused import options_of, problem_of, why_not_scaled
from quantrt.tactics.cuda.attention.make_codes import code_bytes, encoder_draft
from quantrt.tactics.cuda.tactic import CODED, Constant, Draft, Rejected, Tactic, Workload

__all__ = ["list_tactics", "tactic_of"]

_SOURCE = "triton"
_NAME = f"attention {CODED}"


def list_tactics(
    workload: Workload, formula: Attention, mask: Constant | None, device: GpuFacts
) -> list[Tactic | Rejected]:
    """The kernel in its forms and tiles, the most promising first; none where that for 9.0 takes codes.

    Args:
        workload: whose shapes fit each other, and whose products may be of 8 bits.
        mask: the constant mask as it is added; None where there is none.
    """
    problem = problem_of(workload, formula)
    reason = problem if isinstance(problem, str) else why_not_scaled(formula) or why_not(problem, device)
    if isinstance(problem, str) or reason is not None:
        return [Rejected(_SOURCE, _NAME, reason or "")]
    if problem.mask == "none" and hopper.why_not(problem, device) is None:
        return []
    return [tactic_of(formula, problem, how, mask) for how in configs(problem, device)]


def tactic_of(
    formula: Attention, problem: AttentionProblem, how: CodedAttention, mask: Constant | None = None
) -> Tactic:
    """One form of it; the mask where it is constant."""
    form = how.format_of(problem)
    encoder = encoder_draft(formula, problem, form)
    codes = encoder[0].outputs if encoder else ()
    draft = Draft(
        runner="coded_attention",
        inputs=("in0", "in1", "in2", *(("in3",) if formula.has_mask else ()), *codes),
        outputs=tuple(f"out{number}" for number in range(len(problem.outputs))),
        options={**options_of(formula, problem), "codes": len(codes)},
        constants=(mask,) if mask is not None else (),
        kernels=(kernel_of(problem, how),),
    )
    return Tactic(_SOURCE, f"{_NAME} {how.name}", (*encoder, draft), code_bytes(problem, form))
