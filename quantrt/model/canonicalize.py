# SPDX-License-Identifier: Apache-2.0
"""Rewrite a graph into the one form that all later stages know, without changing what it computes."""

from __future__ import annotations

import logging
from collections.abc import Callable

import onnx_ir as ir

from quantrt.ir.shapes import infer_shapes
from quantrt.model.passes.drop_initializer_inputs import drop_initializer_inputs
from quantrt.model.passes.lift_constants import lift_constants

__all__ = ["PASSES", "canonicalize"]

logger = logging.getLogger(__name__)

PASSES: tuple[tuple[Callable[[ir.Model], int], str], ...] = (
    (drop_initializer_inputs, "made {} overridable initializers constant"),
    (lift_constants, "turned {} Constant nodes into initializers"),
)
"""Each pass, in order, and what to report of the number of changes it returns."""


def canonicalize(graph: ir.Model) -> tuple[str, ...]:
    """Apply every pass to `graph` in place; one line per pass that changed something."""
    infer_shapes(graph)
    changes = []
    for apply, text in PASSES:
        count = apply(graph)
        if count:
            changes.append(text.format(count))
            logger.debug("%s: %s", apply.__name__, changes[-1])
    infer_shapes(graph)
    return tuple(changes)
