# SPDX-License-Identifier: Apache-2.0
"""Tiles of a kernel, listed once for equal problems.

A network repeats its layers, and a build lowers it several times: in every precision, and again with the
products left float that are slower in 8 bits. Ranking hundreds of tiles by their estimates for each of them
was a quarter of a rebuild. Names and scales do not enter the estimates, so layers that differ in them alone
are one problem here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from quantrt.gpu import GpuFacts
from quantrt.regions.expression import Expression, Operand

__all__ = ["tiles_of"]

REMEMBERED = 4096
"""Problems whose tiles are kept; what is listed depends on the problem and the device alone."""


class _Problem(Protocol):
    """A problem of a kernel with an epilogue: a frozen dataclass."""

    @property
    def epilogue(self) -> Expression:
        """What follows the sums."""


P = TypeVar("P", bound=_Problem)
T = TypeVar("T")


def tiles_of(configs: Callable[[P, GpuFacts], tuple[T, ...]], problem: P, device: GpuFacts) -> tuple[T, ...]:
    """What `configs` lists for a problem.

    Args:
        configs: of the family's tiles: a function that looks at its arguments alone, and at no names.
    """
    nameless: Any = problem
    nameless = replace(nameless, epilogue=_nameless(problem.epilogue))
    found: tuple[T, ...] = _listed(configs, nameless, device)
    return found


@lru_cache(maxsize=REMEMBERED)
def _listed(configs: Callable[[Any, GpuFacts], Any], problem: Any, device: GpuFacts) -> Any:
    return configs(problem, device)


def _nameless(expression: Expression) -> Expression:
    """The expression with operands of the same kinds; values stay where a power may be a cheap one."""
    has_power = any(instruction.op == "pow" for instruction in expression.instructions)
    operands = (Operand(x.kind, value=x.value if has_power else 0.0) for x in expression.operands)
    return replace(expression, operands=tuple(operands))
