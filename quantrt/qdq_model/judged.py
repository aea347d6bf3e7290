# SPDX-License-Identifier: Apache-2.0
"""A quantized model whose file was judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quantrt.assign.accuracy.accuracy import Accuracy
from quantrt.quantize.fit.fit import Fitted

__all__ = ["Judged", "fewest_floats", "least_lost"]


@dataclass(frozen=True)
class Judged:
    """What was made of a choice, and what it loses.

    Attributes:
        fitted: the quantized model.
        left_float: names of the regions that are float in it, with the reason.
        float_operations: operations of these.
        accuracy: of its file.
        is_inside: whether that is inside the budget.
    """

    fitted: Fitted
    left_float: Mapping[str, str]
    float_operations: int
    accuracy: Accuracy
    is_inside: bool


def fewest_floats(made: Iterable[Judged]) -> Judged | None:
    """Of those inside the budget the one with the fewest operations in floats; None without any."""
    inside = (one for one in made if one.is_inside)
    return min(inside, key=lambda one: (one.float_operations, one.accuracy.drop_ratio), default=None)


def least_lost(made: Iterable[Judged]) -> Judged:
    """The one that loses the least, of at least one."""
    return min(made, key=lambda one: one.accuracy.drop_ratio)
