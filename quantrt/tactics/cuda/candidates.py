# SPDX-License-Identifier: Apache-2.0
"""Every way to compute a workload: its family's tactics, then the reference, which computes anything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quantrt.errors import InternalError
from quantrt.gpu import GpuFacts
from quantrt.kernels.codes.spec import why_not_fp8
from quantrt.regions.formula_expression import constant_names
from quantrt.regions.formula_json import to_json
from quantrt.regions.region import (
    Attention,
    Concat,
    Conv,
    ConvTranspose,
    Gemm,
    GroupNorm,
    LinearAttention,
    Pool,
    PooledConv,
    Resize,
    ResizedConv,
    Rows,
)
from quantrt.tactics.cuda.attention import attention, linear
from quantrt.tactics.cuda.convolutions import conv2d, conv_transpose, pooled_conv, resized_conv
from quantrt.tactics.cuda.memory_bound import concat, group_norm, pool, resize, rows
from quantrt.tactics.cuda.products import gemm
from quantrt.tactics.cuda.tactic import REFERENCE, Constant, Rejected, Tactic, Workload, whole_draft

__all__ = ["list_tactics", "reference_tactic"]


def list_tactics(
    workload: Workload, gpu: GpuFacts, *, allows_coded_attention: bool = False
) -> list[Tactic | Rejected]:
    """Tactics and rejections, of each source the likely fastest first, the reference last.

    Args:
        allows_coded_attention: whether attention over floats may make 8-bit codes of them.

    Raises:
        InternalError: the formula is one that is not computed by tactics (views, host values, nodes).
    """
    types = (*(facts.dtype for facts in workload.inputs), *workload.outputs)
    reason = why_not_fp8(types, gpu)
    if reason is not None:
        return [Rejected("triton", "any kernel", reason), reference_tactic(workload)]
    match workload.formula:
        case Gemm():
            family = gemm.list_tactics(workload, gpu)
        case Conv():
            family = conv2d.list_tactics(workload, gpu)
        case PooledConv():
            family = pooled_conv.list_tactics(workload, gpu)
        case ResizedConv():
            family = resized_conv.list_tactics(workload, gpu)
        case ConvTranspose():
            family = conv_transpose.list_tactics(workload, gpu)
        case Pool():
            family = pool.list_tactics(workload, gpu)
        case Resize():
            family = resize.list_tactics(workload, gpu)
        case GroupNorm():
            family = group_norm.list_tactics(workload, gpu)
        case Concat():
            family = concat.list_tactics(workload, gpu)
        case Rows():
            family = rows.list_tactics(workload, gpu)
        case LinearAttention():
            family = linear.list_tactics(workload, gpu)
        case Attention():
            family = attention.list_tactics(workload, gpu, allows_codes=allows_coded_attention)
        case _:
            raise InternalError(
                f"region '{workload.region}' is not computed by tactics",
                got=f"the formula {type(workload.formula).__name__}",
            )
    return [*family, reference_tactic(workload)]


def reference_tactic(workload: Workload) -> Tactic:
    """The formula evaluated operator by operator, in torch."""
    options = {"formula": to_json(workload.formula)}
    draft = whole_draft("formula", workload, options, constants=tuple(_constants(workload)))
    return Tactic("torch", REFERENCE, (draft,))


def _constants(workload: Workload) -> Iterator[Constant]:
    """The weight, then the constants of the expression, in the layout they are given in."""
    if workload.weight is not None:
        yield _constant("weight", workload.weight)
    for name in constant_names(workload.formula):
        yield _constant(f"constant {name}", workload.constants[name])


def _constant(name: str, array: np.ndarray) -> Constant:
    return Constant(f"{name}|{array.dtype}", lambda: array)
