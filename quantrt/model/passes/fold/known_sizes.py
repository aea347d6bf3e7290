# SPDX-License-Identifier: Apache-2.0
"""The value of nodes that read sizes off a shape, where inference knows these sizes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from quantrt.ir.edit import constant_of, int_attribute, is_operator

__all__ = ["known_sizes"]


def known_sizes(node: ir.Node) -> np.ndarray | None:
    """The int64 value of a Shape, a Size, or a Gather or Slice of a Shape; None when not wholly known.

    For x of shape [batch, 3, 224, 224], Gather(Shape(x), 1) is 3 though Shape(x) is no constant.
    """
    source = node.inputs[0] if node.inputs else None
    if source is None or len(node.outputs) != 1:
        return None
    sizes: np.ndarray | None = None
    if is_operator(node, "Shape"):
        sizes = _shape(node)
    elif is_operator(node, "Size"):
        sizes = _size(source)
    elif is_operator(source.producer(), "Shape"):
        try:
            sizes = _picked(node, _shape(source.producer()))
        except (IndexError, ValueError, TypeError):  # an invalid model: left for the runtime to report
            return None
    if sizes is None or any(dim is None for dim in sizes.reshape(-1)):
        return None
    return sizes.astype(np.int64)


def _shape(node: ir.Node | None) -> np.ndarray | None:
    """What a Shape node gives, as objects: sizes, and None for an unknown one."""
    source = node.inputs[0] if node is not None and node.inputs else None
    if node is None or source is None or source.shape is None:
        return None
    dims = [dim if isinstance(dim, int) else None for dim in source.shape.dims]
    start, end = int_attribute(node, "start", 0), int_attribute(node, "end", len(dims))
    return np.array(dims[start:end], dtype=object)


def _size(source: ir.Value) -> np.ndarray | None:
    if source.shape is None or not source.shape.is_static():
        return None
    return np.array(int(np.prod(source.shape.numpy(), dtype=np.int64)), dtype=object)


def _picked(node: ir.Node, sizes: np.ndarray | None) -> np.ndarray | None:
    arguments = [constant_of(value) for value in node.inputs[1:]]
    if sizes is None or not arguments or any(argument is None for argument in arguments):
        return None
    if is_operator(node, "Gather"):
        return np.asarray(sizes[arguments[0]], dtype=object)
    if is_operator(node, "Slice") and all(
        argument is not None and argument.size == 1 for argument in arguments
    ):
        bounds = [int(argument.item()) for argument in arguments if argument is not None]
        if len(bounds) < 2 or (len(bounds) > 2 and bounds[2] not in (0, -1)):
            return None
        step = bounds[3] if len(bounds) > 3 else 1
        return sizes[bounds[0] : bounds[1] : step] if step > 0 else None
    return None
