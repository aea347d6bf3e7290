# SPDX-License-Identifier: Apache-2.0
"""ONNX element types as torch has them, and the way to and from numpy.

Types narrower than a byte hold one element per byte. torch names them but computes nothing with them, so the
name is a tag: `stored` shows the same bytes as a type that torch can index. Of float4e2m1 torch has the
packed type alone; here it too tags one element per byte, the four-bit code in the low half.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch

from quantrt.errors import ModelError

__all__ = [
    "FLOAT4",
    "INT2",
    "INT4",
    "INTEGER_RANGES",
    "UINT2",
    "UINT4",
    "from_numpy",
    "onnx_type",
    "restored",
    "stored",
    "to_numpy",
    "torch_type",
]

FLOAT4 = torch.float4_e2m1fn_x2
# torch has these types, its type stubs do not.
INT2: torch.dtype = vars(torch)["int2"]
UINT2: torch.dtype = vars(torch)["uint2"]
INT4: torch.dtype = vars(torch)["int4"]
UINT4: torch.dtype = vars(torch)["uint4"]

# ONNX type, torch type, numpy type.
_TYPES: tuple[tuple[ir.DataType, torch.dtype, type], ...] = (
    (ir.DataType.FLOAT, torch.float32, np.float32),
    (ir.DataType.DOUBLE, torch.float64, np.float64),
    (ir.DataType.FLOAT16, torch.float16, np.float16),
    (ir.DataType.BFLOAT16, torch.bfloat16, ml_dtypes.bfloat16),
    (ir.DataType.BOOL, torch.bool, np.bool_),
    (ir.DataType.INT8, torch.int8, np.int8),
    (ir.DataType.INT16, torch.int16, np.int16),
    (ir.DataType.INT32, torch.int32, np.int32),
    (ir.DataType.INT64, torch.int64, np.int64),
    (ir.DataType.UINT8, torch.uint8, np.uint8),
    (ir.DataType.UINT16, torch.uint16, np.uint16),
    (ir.DataType.UINT32, torch.uint32, np.uint32),
    (ir.DataType.UINT64, torch.uint64, np.uint64),
    (ir.DataType.COMPLEX64, torch.complex64, np.complex64),
    (ir.DataType.COMPLEX128, torch.complex128, np.complex128),
    (ir.DataType.INT4, INT4, ml_dtypes.int4),
    (ir.DataType.UINT4, UINT4, ml_dtypes.uint4),
    (ir.DataType.INT2, INT2, ml_dtypes.int2),
    (ir.DataType.UINT2, UINT2, ml_dtypes.uint2),
    (ir.DataType.FLOAT4E2M1, FLOAT4, ml_dtypes.float4_e2m1fn),
    (ir.DataType.FLOAT8E4M3FN, torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    (ir.DataType.FLOAT8E4M3FNUZ, torch.float8_e4m3fnuz, ml_dtypes.float8_e4m3fnuz),
    (ir.DataType.FLOAT8E5M2, torch.float8_e5m2, ml_dtypes.float8_e5m2),
    (ir.DataType.FLOAT8E5M2FNUZ, torch.float8_e5m2fnuz, ml_dtypes.float8_e5m2fnuz),
    (ir.DataType.FLOAT8E8M0, torch.float8_e8m0fnu, ml_dtypes.float8_e8m0fnu),
)

INTEGER_RANGES: dict[torch.dtype, tuple[int, int]] = {
    INT2: (-2, 1),
    UINT2: (0, 3),
    INT4: (-8, 7),
    UINT4: (0, 15),
    torch.int8: (-(2**7), 2**7 - 1),
    torch.uint8: (0, 2**8 - 1),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.uint16: (0, 2**16 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
    torch.uint32: (0, 2**32 - 1),
    torch.int64: (-(2**63), 2**63 - 1),
    torch.uint64: (0, 2**64 - 1),
}

# Types that torch's indexing kernels lack, and the type of the same width that they have.
_STORAGE: dict[torch.dtype, torch.dtype] = {
    INT4: torch.int8,
    UINT4: torch.uint8,
    INT2: torch.int8,
    UINT2: torch.uint8,
    FLOAT4: torch.uint8,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}

_NARROW = (INT4, UINT4, INT2, UINT2)


def torch_type(onnx_type: int) -> torch.dtype:
    """The torch type of an ONNX type number.

    Raises:
        ModelError: text, or a type that torch does not have.
    """
    for known, dtype, _ in _TYPES:
        if known == onnx_type:
            return dtype
    raise ModelError(
        "a tensor has an element type that torch does not have",
        got=ir.DataType(onnx_type).name.lower(),
        expected="one of " + ", ".join(known.name.lower() for known, _, _ in _TYPES),
    )


def onnx_type(dtype: torch.dtype) -> ir.DataType:
    """The ONNX type of a torch type."""
    for known, candidate, _ in _TYPES:
        if candidate == dtype:
            return known
    raise ModelError("a tensor has an element type that ONNX does not have", got=str(dtype))


def stored(x: torch.Tensor) -> torch.Tensor:
    """`x` as a type of the same width that torch can index; the same memory."""
    storage = _STORAGE.get(x.dtype)
    return x if storage is None else x.view(storage)


def restored(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The reverse of `stored`, where `x` still has the storage type of `dtype`."""
    return x.view(dtype) if _STORAGE.get(dtype) == x.dtype else x


def from_numpy(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A tensor on `device` with a copy of `array`.

    Raises:
        ModelError: text, or a type that torch does not have.
    """
    for _, dtype, numpy_dtype in _TYPES:
        if array.dtype == numpy_dtype:
            # torch warns about arrays that it may not write to; a copy is its own.
            owned = np.array(_bytes_of(array, dtype), order="C", copy=True)
            return torch.from_numpy(owned).view(dtype).to(device)
    raise ModelError("an array has an element type that torch does not have", got=str(array.dtype))


def to_numpy(x: torch.Tensor) -> np.ndarray:
    """A numpy array of the same type and values, in host memory."""
    for _, dtype, numpy_dtype in _TYPES:
        if x.dtype == dtype:
            host = stored(x).contiguous().cpu()
            if dtype == torch.bfloat16:
                host = host.view(torch.int16)
            array: np.ndarray = host.numpy()
            if dtype in _NARROW:
                return array.astype(numpy_dtype)
            return array.view(numpy_dtype)
    raise ModelError("a tensor has an element type that ONNX does not have", got=str(x.dtype))


def _bytes_of(array: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """`array` as a type of the same width that numpy and torch both have."""
    if dtype in _NARROW:  # the upper bits of a byte are undefined in ml_dtypes, the sign here
        return array.astype(np.int8 if INTEGER_RANGES[dtype][0] < 0 else np.uint8)
    if dtype == FLOAT4:
        return array.view(np.uint8) & 0xF
    if dtype in _STORAGE:
        return array.view(f"{'u' if array.itemsize == 1 else 'i'}{array.itemsize}")
    return array.view(np.int16) if dtype == torch.bfloat16 else array
