# SPDX-License-Identifier: Apache-2.0
"""The graph of a file with its own nodes: what a linter tells about."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from quantrt.model.file.read import read_model
from quantrt.model.passes.fold.fold_constants import fold_constants
from quantrt.model.passes.remove_identities import remove_identities
from quantrt.model.passes.spell.drop_initializer_inputs import drop_initializer_inputs
from quantrt.model.passes.spell.inline_functions import inline_functions
from quantrt.model.passes.spell.lift_constants import lift_constants

__all__ = ["graph_as_given"]


def graph_as_given(path: Path) -> ir.Model:
    """The graph of an ONNX file; constants are initializers, whatever way they are spelled.

    No operator is fused, moved or raised to another opset; pairs of constants stay.

    Raises:
        ModelError: the file is missing, not ONNX, damaged or unsupported.
    """
    graph = read_model(path).graph
    inline_functions(graph)
    drop_initializer_inputs(graph)
    lift_constants(graph)
    remove_identities(graph)
    fold_constants(graph)
    return graph
