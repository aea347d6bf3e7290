# SPDX-License-Identifier: Apache-2.0
"""Rewrite a graph into the one form that all later stages know, without changing what it computes."""

from __future__ import annotations

import logging
from collections.abc import Callable

import onnx_ir as ir

from quantrt.ir.shapes import infer_shapes
from quantrt.model.passes.cancel_transposes import cancel_transposes
from quantrt.model.passes.fold.fold_batch_norm import fold_batch_norm
from quantrt.model.passes.fold.fold_channel_affine import fold_channel_affine
from quantrt.model.passes.fold.fold_constants import fold_constants
from quantrt.model.passes.remove_identities import remove_identities
from quantrt.model.passes.remove_unused import remove_unused
from quantrt.model.passes.spell.convert_opset import convert_opset
from quantrt.model.passes.spell.drop_initializer_inputs import drop_initializer_inputs
from quantrt.model.passes.spell.inline_functions import inline_functions
from quantrt.model.passes.spell.lift_constants import lift_constants
from quantrt.model.passes.spell.rename_generated import rename_generated
from quantrt.model.passes.spell.spell_cast_like import spell_cast_like
from quantrt.model.passes.spell.spell_contrib import spell_contrib
from quantrt.model.passes.spell.spell_sequences import spell_sequences
from quantrt.model.passes.types.narrow_doubles import narrow_doubles
from quantrt.model.passes.types.widen_halves import widen_halves

__all__ = ["PASSES", "canonicalize"]

logger = logging.getLogger(__name__)

PASSES: tuple[tuple[Callable[[ir.Model], int], str], ...] = (
    (inline_functions, "inlined {} local functions"),
    (drop_initializer_inputs, "made {} overridable initializers constant"),
    (lift_constants, "turned {} Constant nodes into initializers"),
    (rename_generated, "renamed {} constants that ONNX Runtime had named"),
    (spell_cast_like, "wrote {} CastLike as Cast"),
    (remove_identities, "removed {} nodes that change nothing"),
    (widen_halves, "made {} constants, casts and ends of 16-bit floats float32"),
    (narrow_doubles, "made {} constants and casts of float64 float32"),
    (convert_opset, "raised the opset to 13"),
    (spell_contrib, "wrote {} operators of ONNX Runtime's own as standard ones"),
    (fold_constants, "folded {} constant nodes"),
    (remove_identities, "removed {} nodes that change nothing, now that types are known"),
    (cancel_transposes, "removed {} Transposes that put back what one before had turned"),
    (spell_sequences, "wrote {} sequences of parts as Split"),
    (fold_batch_norm, "folded {} BatchNormalization into the node before"),
    (fold_channel_affine, "folded {} per-channel Add, Sub, Mul, Div into convolutions"),
    (remove_unused, "removed {} unused nodes and initializers"),
)
"""Each pass, in order, and what to report of the number of changes it returns."""


def canonicalize(graph: ir.Model) -> tuple[str, ...]:
    """Apply every pass to `graph` in place; one line per pass that changed something."""
    changes = []
    for apply, text in PASSES:
        count = apply(graph)
        if count:
            changes.append(text.format(count))
            logger.debug("%s: %s", apply.__name__, changes[-1])
    infer_shapes(graph)
    return tuple(changes)
