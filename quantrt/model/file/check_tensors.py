# SPDX-License-Identifier: Apache-2.0
"""Check that a tensor's data has the size its shape declares, before memory is taken for it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
import onnx_ir as ir

from quantrt.errors import ModelError

__all__ = ["check_initializers", "check_tensor"]

_Tensor = onnx.TensorProto

# Which typed field holds a type's elements, and in how many entries each; onnx.proto3, message TensorProto.
_TYPED_FIELD: dict[int, tuple[str, int]] = {
    _Tensor.FLOAT: ("float_data", 1),
    _Tensor.COMPLEX64: ("float_data", 2),
    _Tensor.DOUBLE: ("double_data", 1),
    _Tensor.COMPLEX128: ("double_data", 2),
    _Tensor.INT64: ("int64_data", 1),
    _Tensor.UINT32: ("uint64_data", 1),
    _Tensor.UINT64: ("uint64_data", 1),
    _Tensor.STRING: ("string_data", 1),
}


def check_initializers(graph: onnx.GraphProto, lifted_bytes: Mapping[int, int]) -> None:
    """Check each initializer of `graph`; `lifted_bytes` is the data size of those without data, by index."""
    for index, tensor in enumerate(graph.initializer):
        check_tensor(tensor, f"initializer '{tensor.name}'", lifted_bytes.get(index))


def check_tensor(tensor: onnx.TensorProto, label: str, lifted_bytes: int | None = None) -> None:
    """Check type, shape and size of `tensor`; external data is checked when its file is opened.

    Raises:
        ModelError: names `label`.
    """
    if tensor.data_type == _Tensor.UNDEFINED or tensor.data_type not in _Tensor.DataType.values():
        raise ModelError(f"{label} has no known element type", got=f"type {tensor.data_type}")
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"{label} has a negative size", got=f"shape {list(tensor.dims)}")
    if tensor.HasField("segment"):
        raise ModelError(f"{label} is split into segments, which is not supported")
    dtype = ir.DataType(tensor.data_type)
    element_count = math.prod(tensor.dims)
    if tensor.data_location == _Tensor.EXTERNAL:
        _check_external(tensor, label)
    elif lifted_bytes is not None or tensor.HasField("raw_data"):
        got = len(tensor.raw_data) if lifted_bytes is None else lifted_bytes
        if dtype == ir.DataType.STRING:
            raise ModelError(f"{label} holds text as raw data, which ONNX does not allow")
        _check_count(label, tensor, got, -(-element_count * dtype.bitwidth // 8), "bytes")
    else:
        field, entries = _TYPED_FIELD.get(tensor.data_type, ("int32_data", 1))
        expected = element_count * entries
        if dtype != ir.DataType.STRING and dtype.bitwidth < 8:  # packed into bytes, one byte per entry
            expected = -(-element_count * dtype.bitwidth // 8)
        _check_count(label, tensor, len(getattr(tensor, field)), expected, "values")


def _check_count(label: str, tensor: onnx.TensorProto, got: int, expected: int, unit: str) -> None:
    if got != expected:
        dtype = ir.DataType(tensor.data_type).name.lower()
        raise ModelError(
            f"the data of {label} disagrees with its shape",
            got=f"{got} {unit}",
            expected=f"{expected} {unit} for {dtype} {list(tensor.dims)}",
        )


def _check_external(tensor: onnx.TensorProto, label: str) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if not entries.get("location"):
        raise ModelError(f"external data of {label} has no location")
    if tensor.data_type == _Tensor.STRING:
        raise ModelError(f"{label} holds text as external data, which ONNX does not allow")
    for key in ("offset", "length"):
        value = entries.get(key, "0")
        if not (value.isascii() and value.isdigit()):
            raise ModelError(f"external data of {label} has no usable {key}", got=repr(value))
