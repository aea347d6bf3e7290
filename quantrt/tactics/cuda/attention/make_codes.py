# SPDX-License-Identifier: Apache-2.0
"""The step that makes codes of q, k and v for an attention over codes behind it."""

from __future__ import annotations

from quantrt.kernels.attention.spec import AttentionProblem
from quantrt.kernels.attention_codes.spec import CodeFormat, encoder_of
from quantrt.regions.region import Attention
from quantrt.tactics.cuda.tactic import Draft

__all__ = ["code_bytes", "encoder_draft"]

_QUERY_CODES = ("q_codes", "q_scales")
_KEY_CODES = ("k_codes", "k_scales")
_VALUE_CODES = ("v_codes", "v_scales")


def encoder_draft(formula: Attention, problem: AttentionProblem, form: CodeFormat) -> tuple[Draft, ...]:
    """The step, whose outputs the attention reads behind q, k, v and a mask; none for floats alone."""
    names = (
        *((*_QUERY_CODES, *_KEY_CODES) if form.scores != "floats" else ()),
        *(_VALUE_CODES if form.values != "floats" else ()),
    )
    if not names:
        return ()
    options = {"scale": formula.scale, "is_transposed": formula.is_transposed, "dtype": problem.dtype}
    kernels = (encoder_of(problem, form),)
    return (Draft("encode_attention", ("in0", "in1", "in2"), names, options, kernels=kernels),)


def code_bytes(problem: AttentionProblem, form: CodeFormat) -> int:
    """Of codes and scales."""
    queries = problem.B * problem.H * problem.S * (form.block_d + 4)
    keys = problem.B * (problem.H // problem.groups) * problem.T * (form.block_d + 1)
    return (queries + keys if form.scores != "floats" else 0) + (keys if form.values != "floats" else 0)
