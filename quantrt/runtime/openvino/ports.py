# SPDX-License-Identifier: Apache-2.0
"""What goes into and comes out of OpenVINO's models: ports, shapes, arrays as the library's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino

from quantrt.errors import DataError, InternalError
from quantrt.ir.tensor_spec import Dim, TensorSpec

__all__ = ["Shapes", "choose_outputs", "names_of", "shapes_text", "shared_tensor", "spec_of", "too_wide"]

Shapes = tuple[tuple[int, ...], ...]
"""Of a model's inputs, in its order."""


def choose_outputs(model: openvino.Model, names: Sequence[str] | None) -> list[tuple[str, int]]:
    """(name, index of the model's output) in the order wanted."""
    index = {name: i for i, port in reversed(list(enumerate(model.outputs))) for name in names_of(port)}
    if names is None:
        names = [min(names_of(port)) for port in model.outputs]
    for name in names:
        if name not in index:
            raise InternalError(f"the OpenVINO model has no output '{name}'", got=", ".join(sorted(index)))
    return [(name, index[name]) for name in names]


def too_wide(spec: TensorSpec, array: np.ndarray) -> DataError:
    """What is said of values that do not fit into 32 bits."""
    bounds = np.iinfo(np.int32)
    return DataError(
        f"OpenVINO cannot run input '{spec.name}': it computes {spec.dtype} in 32 bits",
        got=f"values from {array.min()} to {array.max()}",
        expected=f"{bounds.min} to {bounds.max}",
        hint="`quantrt build MODEL.onnx --library onnxruntime ... -o ENGINE.qrt`",
    )


def names_of(port: Any) -> set[str]:
    """Every name of a tensor; its node's where it has none."""
    return port.names or {port.node.friendly_name}


def spec_of(port: Any, name: str | None) -> TensorSpec:
    """A port under one of its names; the first of them without one."""
    shape: tuple[Dim, ...] | None = None
    if port.partial_shape.rank.is_static:
        shape = tuple(dim.get_length() if dim.is_static else None for dim in port.partial_shape)
    kind = port.get_element_type()
    dtype = {"string": "string", "bf16": "bfloat16"}.get(kind.get_type_name()) or kind.to_dtype().name
    return TensorSpec(name or min(names_of(port)), dtype, shape)


def shapes_text(shapes: Shapes) -> str:
    """Such as "8x3x224x224"; with a blank between those of several inputs."""
    return " ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def shared_tensor(array: np.ndarray) -> openvino.Tensor:
    """The array as the library's tensor, on the same memory when it is contiguous."""
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    if not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return openvino.Tensor(array, shared_memory=True)


class _Writable:
    """Claims that a read-only array is writable, which the library asks for and does not use.

    It writes neither to its inputs nor to its constants: the constants of its own files are mapped read-only.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
