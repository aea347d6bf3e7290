# SPDX-License-Identifier: Apache-2.0
"""Dimensions of inputs and outputs whose axes are in another order than the model's.

In trtexec a tensor keeps the model's dimensions, N C H W, whatever its format is, and its raw file has the
elements as they lie in memory. QuantRT's inputs have the dimensions of their memory. Here is the way between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quantrt.ir.layout import layout_of
from quantrt.ir.tensor_spec import Dim, TensorSpec
from quantrt.trtexec.flags.values import Shape

__all__ = ["in_memory", "in_model_order", "model_shape"]


def in_memory(spec: TensorSpec, shape: Shape) -> Shape:
    """Dimensions of the memory of a tensor with these of the model.

    Raises:
        UsageError: it cannot have them.
    """
    layout = layout_of(spec)
    return shape if layout is None else layout.memory_shape(shape)


def model_shape(spec: TensorSpec, shape: Shape) -> Shape:
    """Dimensions of the model of a tensor with these of its memory."""
    layout = layout_of(spec)
    return shape if layout is None else _sizes(layout.model_shape(shape))


def in_model_order(specs: Sequence[TensorSpec], arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of an engine with the axes of its model, as trtexec prints them."""
    layouts = {spec.name: layout_of(spec) for spec in specs}
    return {
        name: array if (layout := layouts.get(name)) is None else layout.to_model_array(array)
        for name, array in arrays.items()
    }


def _sizes(shape: Sequence[Dim]) -> Shape:
    return tuple(size for size in shape if isinstance(size, int))
