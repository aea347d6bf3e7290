# SPDX-License-Identifier: Apache-2.0
"""The norm over rows that an expression is, however it is spelled: known by its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from quantrt.regions.expression import Expression
from quantrt.runtime.cuda.evaluate import evaluate

__all__ = ["KnownNorm", "norm_of"]

Array = npt.NDArray[Any]

_TOLERANCE = 1e-4
"""Of the size of a row: a few hundred roundings of float32."""

_SIZES = (1e-4, 1e-3, 1e-2, 1.0, 30.0)
"""Of test rows: epsilons from 1e-12 to 1e-4 make a difference in one of them, or in none that counts."""

_MAX_CONSTANTS = 2


@dataclass(frozen=True)
class KnownNorm:
    """y = norm(x) * scale + shift.

    Attributes:
        is_centred: norm(x) = (x - mean) / sqrt(var + epsilon); else x / sqrt(mean of squares + epsilon).
        scale, shift: a number for each column; None for 1 and for 0.
    """

    epsilon: float
    is_centred: bool
    scale: Array | None
    shift: Array | None

    def __call__(self, x: Array) -> Array:
        """The norm of rows in float64."""
        x = x.astype(np.float64)
        rows = x - x.mean(-1, keepdims=True) if self.is_centred else x
        rows = rows / np.sqrt(np.square(rows).mean(-1, keepdims=True) + self.epsilon)
        rows = rows if self.scale is None else rows * self.scale
        rows = rows if self.shift is None else rows + self.shift
        return np.asarray(rows)


def norm_of(expression: Expression, constants: Mapping[str, Array], columns: int) -> KnownNorm | None:
    """The norm that the only output of an expression of one tensor is; None where it is none.

    Args:
        constants: of the expression, by name; of `columns` elements each.
    """
    kinds = [operand.kind for operand in expression.operands]
    is_plain = kinds.count("tensor") == 1 and set(kinds) <= {"tensor", "constant", "scalar"}
    if not is_plain or not expression.has_row or len(expression.outputs) != 1 or expression.row_outputs[0]:
        return None
    used = {name: array.reshape(-1) for name, array in constants.items()}
    if len(used) > _MAX_CONSTANTS or any(array.size != columns for array in used.values()):
        return None
    x = _rows(columns)
    tensors = {name: torch.from_numpy(array.astype(np.float32)) for name, array in used.items()}
    y = evaluate(expression, None, [torch.from_numpy(x)], tensors)[0].double().numpy()
    return next((norm for norm in _norms(expression, list(used.values())) if _is_like(norm(x), y)), None)


def _rows(columns: int) -> Array:
    """Rows of several sizes, around means of their size."""
    normal = np.random.default_rng(0).standard_normal((len(_SIZES), columns))
    return np.asarray((normal + 1.5) * np.array(_SIZES)[:, None], np.float32)


def _norms(expression: Expression, constants: list[Array]) -> Iterator[KnownNorm]:
    """Norms with the numbers and constants of an expression."""
    numbers = [operand.value for operand in expression.operands if operand.kind == "scalar"]
    numbers += [step.value for step in expression.instructions if step.op == "const"]
    epsilons = dict.fromkeys(number for number in (*numbers, 0.0) if 0.0 <= number < 1.0)
    orders: list[tuple[Array | None, Array | None]] = [(None, None)]
    if len(constants) == 1:
        orders = [(constants[0], None), (None, constants[0])]
    elif constants:
        orders = [(constants[0], constants[1]), (constants[1], constants[0])]
    for is_centred, epsilon, (scale, shift) in product((True, False), epsilons, orders):
        yield KnownNorm(epsilon, is_centred, scale, shift)


def _is_like(want: Array, got: Array) -> bool:
    size = np.sqrt(np.square(want).mean(-1, keepdims=True))
    return bool((np.abs(got - want) <= _TOLERANCE * size + 1e-30).all())
