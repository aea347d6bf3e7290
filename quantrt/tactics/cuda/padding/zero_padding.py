# SPDX-License-Identifier: Apache-2.0
"""The function that an engine without padding computes: outputs are 0 where the mask keeps nothing.

    y [B, S, ...]  ->  Where(mask != 0, y, 0)

What a model gives there is of no use to anyone, and it is not computed. All that such an engine is held
against computes the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from quantrt.errors import UsageError
from quantrt.ir.clone import clone
from quantrt.ir.edit import add_constant
from quantrt.model.model import Model
from quantrt.regions.facts.sizes import Sizes

__all__ = ["zero_padding"]

_BEFORE = "before zeros"
"""Behind the name of an output: what the model gave."""


def zero_padding(model: Model, mask: str | None) -> Model:
    """The model with zeros at padding in all outputs of tokens; the model given is not changed.

    Args:
        mask: an input, [B, S]; what is not 0 is a token. None: the model as it is.

    Raises:
        UsageError: there is no such input, or it has other axes.
    """
    if mask is None:
        return model
    graph = clone(model.graph)
    given = next((value for value in graph.graph.inputs if value.name == mask), None)
    if given is None or given.shape is None or len(given.shape) != 2 or given.dtype is None:
        names = ", ".join(f"{spec.name} {list(spec.shape or ())}" for spec in model.inputs)
        raise UsageError(
            f"cannot remove the padding that '{mask}' tells of",
            got=f"inputs {names}",
            expected="the name of an input of two axes, samples and their tokens, not 0 for a token",
            hint="--remove-padding attention_mask",
        )
    sizes = Sizes(graph)
    whole = sizes.shape(given)
    outputs = [(place, value) for place, value in enumerate(graph.graph.outputs)]
    tokens = [(place, value) for place, value in outputs if (sizes.shape(value) or ())[:2] == whole]
    if tokens:
        flags = ir.Node(
            "", "Cast", [given], [ir.AttrInt64("to", int(ir.DataType.BOOL))], name=f"{mask}.flags"
        )
        flags.outputs[0].name, flags.outputs[0].type = f"{mask}.flags", ir.TensorType(ir.DataType.BOOL)
        flags.outputs[0].shape = given.shape
        graph.graph.append(flags)
        for place, value in tokens:
            graph.graph.outputs[place] = _zeroed(graph, value, flags.outputs[0])
    return replace(model, graph=graph)


def _zeroed(graph: ir.Model, value: ir.Value, flags: ir.Value) -> ir.Value:
    """What becomes of an output; it takes its name."""
    name, rank = value.name or "", len(value.shape or ())
    dtype = ir.DataType.FLOAT if value.dtype is None else value.dtype
    value.name = f"{name} {_BEFORE}"
    if rank > 2:
        axes = add_constant(graph, f"{name}.axes", np.arange(2, rank))
        spread = ir.Node("", "Unsqueeze", [flags, axes], name=f"{name}.flags")
        sizes = [] if flags.shape is None else list(flags.shape.dims)
        spread.outputs[0].name, spread.outputs[0].shape = (
            f"{name}.flags",
            ir.Shape([*sizes, *[1] * (rank - 2)]),
        )
        spread.outputs[0].type = flags.type
        graph.graph.append(spread)
        flags = spread.outputs[0]
    zero = add_constant(graph, f"{name}.zero", np.zeros((), dtype.numpy()))
    node = ir.Node("", "Where", [flags, value, zero], name=f"{name}.zeroed")
    made = node.outputs[0]
    made.name, made.shape, made.type = name, value.shape, value.type
    graph.graph.append(node)
    return made
