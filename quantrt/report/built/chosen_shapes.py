# SPDX-License-Identifier: Apache-2.0
"""The shapes that an engine was chosen at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quantrt.errors import ModelError
from quantrt.plan.plan import LibraryModel, Plan
from quantrt.runtime.profile_check import profiles_of

__all__ = ["TIMED_SHAPES", "best_shapes", "chosen_shapes", "shape_rows", "timed_shapes"]

TIMED_SHAPES = "timed_shapes"
"""The entry of a build report that holds them."""

Shape = tuple[int, ...]


def shape_rows(inputs: Mapping[str, Any]) -> dict[str, list[int]]:
    """What a build report holds of the arrays that candidates were timed on."""
    return {name: list(array.shape) for name, array in inputs.items()}


def best_shapes(model: LibraryModel) -> dict[str, Shape]:
    """What an engine's kernels were chosen at; nothing where its shapes are free."""
    profiles = profiles_of(model)
    return dict(profiles[0].best) if profiles else {}


def chosen_shapes(plan: Plan) -> dict[str, Shape]:
    """The best shapes of its first profile, else those of the arrays that its build timed; none of neither.

    Raises:
        ModelError: the report of the engine has something else in their place.
    """
    return best_shapes(plan.model) or timed_shapes(plan)


def timed_shapes(plan: Plan) -> dict[str, Shape]:
    """Those of the arrays that an engine's build timed; none where it timed none.

    Raises:
        ModelError: the report of the engine has something else in their place.
    """
    rows = plan.report.get(TIMED_SHAPES, {})
    if not isinstance(rows, Mapping) or not all(map(_is_shape, rows.values())):
        raise ModelError("cannot read the shapes that this engine was timed at", got=str(rows)[:80])
    return {name: tuple(shape) for name, shape in rows.items()}


def _is_shape(row: object) -> bool:
    return isinstance(row, list) and all(type(size) is int and size >= 0 for size in row)
