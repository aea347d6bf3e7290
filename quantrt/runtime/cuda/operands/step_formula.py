# SPDX-License-Identifier: Apache-2.0
"""The formula that a step computes, as its options describe it."""

from __future__ import annotations

from typing import TypeVar

from quantrt.errors import InternalError
from quantrt.plan.program import Step
from quantrt.regions.formula_json import from_json

__all__ = ["formula_of"]

F = TypeVar("F")


def formula_of(step: Step, kind: type[F]) -> F:
    """The step's formula.

    Args:
        kind: the class of formulas that the step's runner computes.

    Raises:
        InternalError: it is of another.
        ModelError: the options describe none.
    """
    formula = from_json(step.options["formula"])
    if not isinstance(formula, kind):
        got = type(formula).__name__
        raise InternalError(f"the step of region '{step.region}' is no {kind.__name__}", got=got)
    return formula
