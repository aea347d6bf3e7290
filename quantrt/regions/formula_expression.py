# SPDX-License-Identifier: Apache-2.0
"""The expression that the results of a formula come from, and the constants that it reads."""

from __future__ import annotations

from quantrt.regions.expression import Expression
from quantrt.regions.region import (
    Attention,
    Conv,
    ConvTranspose,
    Formula,
    Gemm,
    GroupNorm,
    Pool,
    PooledConv,
    Resize,
    ResizedConv,
    Rows,
)

__all__ = ["constant_names", "expression_of"]


def expression_of(formula: Formula) -> Expression | None:
    """The expression over all that a formula reads; None for attention and for formulas without one."""
    match formula:
        case (
            Gemm(epilogue=expression)
            | Conv(epilogue=expression)
            | ConvTranspose(epilogue=expression)
            | Pool(epilogue=expression)
            | PooledConv(convolution=Conv(epilogue=expression))
            | Resize(epilogue=expression)
            | ResizedConv(convolution=Conv(epilogue=expression))
            | GroupNorm(epilogue=expression)
            | Rows(expression)
        ):
            return expression
        case _:
            return None


def constant_names(formula: Formula) -> tuple[str, ...]:
    """Names of the constants and tables of a formula's expression, in operand order, each once."""
    expression = expression_of(formula)
    if expression is not None:
        names = (x.name for x in expression.operands if x.kind in ("constant", "lookup"))
        return tuple(dict.fromkeys(names))
    return (formula.mask_constant,) if isinstance(formula, Attention) and formula.mask_constant else ()
