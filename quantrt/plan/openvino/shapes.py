# SPDX-License-Identifier: Apache-2.0
"""Shapes that OpenVINO's importer computes in the graph though they are known, as constants.

A bias is reshaped by the rank of what it is added to, which takes eight operators, and every rewriting of the
graph that compiling consists of walks over them again: over 500 of the 2,410 of a ResNet-56 in int8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import openvino as ov

__all__ = ["fold_shapes"]


def fold_shapes(model: ov.Model) -> None:
    """Write the shape that a constant is reshaped to as a constant; in place."""
    from openvino import op  # heavy, as in quantrt.plan.openvino.held

    for node in model.get_ordered_ops():
        if _has_known_shape(node):
            shape = op.Constant(np.array(node.get_output_shape(0), np.int64))
            node.input(1).replace_source_output(shape.output(0))


def _has_known_shape(node: Any) -> bool:
    """Whether a constant is reshaped, to sizes that are computed and can only be these."""
    if node.get_type_name() != "Reshape" or node.get_output_partial_shape(0).is_dynamic:
        return False
    data, shape = (value.get_node().get_type_name() for value in node.input_values())
    return bool(data == "Constant" and shape != "Constant")
