# SPDX-License-Identifier: Apache-2.0
"""Attention by kernels of compute capability 9.0: of floats, or of codes that a step before them makes."""

from __future__ import annotations

from quantrt.gpu import GpuFacts
from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_hopper.spec import HopperAttention, kernel_of, why_not
from quantrt.kernels.attention_hopper.tiles import coded_forms, float_forms
from quantrt.kernels.attention_short import spec as short
from quantrt.kernels.attention_short.spec import ShortAttention
from quantrt.kernels.kernel import KernelSpec
from quantrt.regions.region import Attention
from quantrt.tactics.cuda.attention.fused import problem_of, why_not_scaled
from quantrt.tactics.cuda.attention.make_codes import code_bytes, encoder_draft
from quantrt.tactics.cuda.tactic import CODED, Constant, Draft, Rejected, Tactic, Workload

__all__ = ["list_tactics", "tactic_of"]

_SOURCE = "triton"
_NAME = "attention hopper"


def list_tactics(
    workload: Workload,
    formula: Attention,
    mask: Constant | None,
    device: GpuFacts,
    *,
    allows_codes: bool,
) -> list[Tactic | Rejected]:
    """The kernels in their forms, the most promising first.

    Args:
        workload: whose shapes fit each other.
        mask: the constant mask as it is added; None where there is none.
        allows_codes: whether products may be of 8 bits.
    """
    problem = problem_of(workload, formula)
    reason = problem if isinstance(problem, str) else why_not_scaled(formula) or why_not(problem, device)
    if isinstance(problem, str) or reason is not None:
        return [Rejected(_SOURCE, _NAME, reason or "")]
    forms: list[HopperAttention | ShortAttention] = []
    if short.why_not(problem, device) is None:
        forms += short.configs(problem, device)
    forms += coded_forms(problem, device) if allows_codes else ()
    forms += float_forms(problem, device)
    return [tactic_of(formula, problem, how, mask) for how in forms]


def tactic_of(
    formula: Attention,
    problem: AttentionProblem,
    how: HopperAttention | ShortAttention,
    mask: Constant | None = None,
) -> Tactic:
    """One form of one of them; the mask where it is constant."""
    if isinstance(how, ShortAttention):
        draft = _draft(formula, problem, short.kernel_of(problem, how), mask, ())
        return Tactic(_SOURCE, f"attention {how.name}", (draft,))
    form = how.format_of(problem)
    encoder = encoder_draft(formula, problem, form)
    codes = encoder[0].outputs if encoder else ()
    draft = _draft(formula, problem, kernel_of(problem, how), mask, codes)
    mark = f"{CODED} " if codes else ""
    return Tactic(_SOURCE, f"attention {mark}{how.name}", (*encoder, draft), code_bytes(problem, form))


def _draft(
    formula: Attention,
    problem: AttentionProblem,
    kernel: KernelSpec,
    mask: Constant | None,
    codes: tuple[str, ...],
) -> Draft:
    """The step with a kernel.

    Args:
        codes: names of codes and scales that it reads.
    """
    return Draft(
        runner="hopper_attention",
        inputs=("in0", "in1", "in2", *(("in3",) if formula.has_mask else ()), *codes),
        outputs=tuple(f"out{number}" for number in range(len(problem.outputs))),
        options={
            "scale": formula.scale,
            "is_transposed": formula.is_transposed,
            "dtype": problem.dtype,
            "scalars": [operand.value for operand in problem.epilogue.operands[1:]],
            "outputs": list(problem.outputs),
            "codes": len(codes),
        },
        constants=(mask,) if mask is not None else (),
        kernels=(kernel,),
    )
