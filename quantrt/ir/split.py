# SPDX-License-Identifier: Apache-2.0
"""A graph as a small protobuf and its large weights, for libraries that take the two apart.

A protobuf holds at most 2 GiB, and serializing a weight into one copies it. Weights that are handed over
as arrays are neither bounded nor copied: a memory-mapped weight stays memory-mapped.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import onnx_ir as ir
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from quantrt.errors import ModelError, first_line
from quantrt.ir.clone import clone

__all__ = ["WEIGHTS_LOCATION", "split_weights", "to_bytes"]

WEIGHTS_LOCATION = "weights"

SIZES_BYTES = 2**20
"""Sizes, axes and the like of fewer bytes stay in the protobuf, where shape inference reads them."""


def split_weights(
    graph: ir.Model, min_bytes: int = 1024, *, inside: Collection[str] = ()
) -> tuple[bytes, dict[str, np.ndarray]]:
    """The protobuf of `graph` without its large initializers, and these by name.

    In the protobuf they are marked as external data at the location "weights", a file that need not
    exist: the arrays are given to the library beside it. Initializers of subgraphs, strings and types
    narrower than a byte stay inside.

    Args:
        min_bytes: initializers of fewer bytes stay inside.
        inside: names of others that do.

    Returns:
        Protobuf and arrays. The arrays are the graph's own memory and must not be written to.

    Raises:
        ModelError: what stays inside exceeds 2 GiB.
    """
    light = clone(graph)
    weights: dict[str, np.ndarray] = {}
    offset = 0
    for name, value in light.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or name in inside or not _is_splittable(tensor, min_bytes):
            continue
        weights[name] = tensor.numpy()
        value.const_value = ir.ExternalTensor(
            WEIGHTS_LOCATION,
            offset,
            tensor.nbytes,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=name,
        )
        offset += tensor.nbytes
    return to_bytes(light), weights


def to_bytes(graph: ir.Model) -> bytes:
    """The protobuf of `graph`.

    Raises:
        ModelError: it would exceed the 2 GiB a protobuf can hold.
    """
    try:
        return bytes(ir.to_proto(graph).SerializeToString())
    except (EncodeError, ValueError, ir.serde.SerdeError) as error:
        raise ModelError("cannot write the model as one protobuf", got=first_line(error)) from error


def _is_splittable(tensor: ir.TensorProtocol, min_bytes: int) -> bool:
    if tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8:
        return False
    is_sizes = len(tensor.shape) <= 1 and tensor.dtype in {ir.DataType.INT32, ir.DataType.INT64}
    least_bytes = SIZES_BYTES if is_sizes else min_bytes
    return math.prod(tensor.shape.numpy()) * tensor.dtype.bitwidth // 8 >= least_bytes
