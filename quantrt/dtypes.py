# SPDX-License-Identifier: Apache-2.0
"""The element types QuantRT knows, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.errors import UsageError, close_match

__all__ = ["DTYPES", "INT8", "INT32", "UINT8", "DType", "dtype"]


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: numpy's and ONNX's lower-case name.
        bits: storage per element.
        qmin, qmax: the integer range of a quantized type; None for floats.
    """

    name: str
    bits: int
    qmin: int | None = None
    qmax: int | None = None

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers with a bounded range."""
        return self.qmin is not None


INT8 = DType("int8", 8, -128, 127)
UINT8 = DType("uint8", 8, 0, 255)
INT32 = DType("int32", 32, -(2**31), 2**31 - 1)

DTYPES = (
    DType("float64", 64),
    DType("float32", 32),
    DType("float16", 16),
    DType("bfloat16", 16),
    INT8,
    UINT8,
    DType("int16", 16, -(2**15), 2**15 - 1),
    DType("uint16", 16, 0, 2**16 - 1),
    INT32,
    DType("uint32", 32, 0, 2**32 - 1),
    DType("int64", 64, -(2**63), 2**63 - 1),
    DType("uint64", 64, 0, 2**64 - 1),
    DType("bool", 8),
    DType("string", 0),
)


def dtype(name: str) -> DType:
    """The row named `name`.

    Raises:
        UsageError: no such type; names the nearest one.
    """
    for row in DTYPES:
        if row.name == name:
            return row
    near = close_match(name, [row.name for row in DTYPES])
    raise UsageError(f"unknown element type '{name}'", hint=f"'{near}'" if near else None)
