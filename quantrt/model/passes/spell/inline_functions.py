# SPDX-License-Identifier: Apache-2.0
"""Calls of the model's own functions become the nodes inside them."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from quantrt.errors import ModelError

__all__ = ["inline_functions"]


def inline_functions(graph: ir.Model) -> int:
    """Inline every local function; how many there were.

    Raises:
        ModelError: the functions call each other in a circle.
    """
    count = len(graph.functions)
    if count:
        try:
            InlinePass()(graph)
        except (ir.passes.PassError, ir.passes.InvariantError, ValueError) as error:
            raise ModelError(
                "cannot inline the model's local functions", got=str(error.__cause__ or error)
            ) from error
    return count
