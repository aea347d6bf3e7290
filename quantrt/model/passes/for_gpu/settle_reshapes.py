# SPDX-License-Identifier: Apache-2.0
"""Reshapes to sizes that are computed when the model runs get constants, where inference knows all but one.

    Reshape(y, Shape(x))  ->  Reshape(y, [-1, 320, 64, 64])        # x is [batch, 320, 64, 64]

Exporters write norms over groups of channels so. A value whose shape is asked for has one reader more than it
seems to have, and is stored for it: without, it is computed in the kernel of the reader that is left.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import add_constant, constant_of, is_operator, taken_names
from quantrt.model.passes.remove_unused import remove_unused

__all__ = ["settle_reshapes"]

REST = -1
"""In the place of the size that is not known: what the others leave."""


def settle_reshapes(graph: ir.Model) -> int:
    """Rewrite the Reshapes of the main graph; how many."""
    targets: dict[tuple[int, ...], ir.Value] = {}
    taken = taken_names(graph)
    count = 0
    for node in graph.graph:
        sizes = _settled(node)
        if sizes is None:
            continue
        if sizes not in targets:
            targets[sizes] = add_constant(graph, f"{node.name}.sizes", np.array(sizes, np.int64), taken)
        node.replace_input_with(1, targets[sizes])
        count += 1
    if count:
        remove_unused(graph)
    return count


def _settled(node: ir.Node) -> tuple[int, ...] | None:
    """The sizes of the result of a Reshape whose sizes are computed; None where more than one is unknown."""
    if not is_operator(node, "Reshape") or constant_of(node.inputs[1]) is not None:
        return None
    shape = node.outputs[0].shape
    if shape is None:
        return None
    sizes = tuple(dim if isinstance(dim, int) else REST for dim in shape.dims)
    return sizes if sizes.count(REST) == 1 and 0 not in sizes else None
