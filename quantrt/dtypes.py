# SPDX-License-Identifier: Apache-2.0
"""The element types QuantRT knows, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from quantrt.errors import UsageError, close_match

__all__ = [
    "CODE_PRECISIONS",
    "CODE_TYPES",
    "DTYPES",
    "FP8",
    "INT8",
    "INT32",
    "UINT8",
    "DType",
    "dtype",
    "precision_of",
]


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: numpy's and ONNX's lower-case name.
        bits: storage per element.
        qmin, qmax: the least and the largest code of a quantized type; None for floats.
        precision: what a model with such codes is said to run in, as in `--int8`; empty where none has them.
        is_float: whether the codes are floats themselves.
    """

    name: str
    bits: int
    qmin: int | None = None
    qmax: int | None = None
    precision: str = ""
    is_float: bool = False

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers with a bounded range."""
        return self.qmin is not None and not self.is_float


INT8 = DType("int8", 8, -128, 127, "int8")
UINT8 = DType("uint8", 8, 0, 255, "int8")
INT32 = DType("int32", 32, -(2**31), 2**31 - 1)
FP8 = DType("float8_e4m3fn", 8, -448, 448, "fp8", is_float=True)
"""E4M3 of Micikevicius et al. 2022, "FP8 formats for deep learning": 4 bits of exponent, 3 of mantissa, no
infinities; 448 is the largest number."""

CODE_TYPES = (INT8, FP8)
"""What kernels of a GPU multiply as codes."""

CODE_PRECISIONS = tuple(row.precision for row in CODE_TYPES)

DTYPES = (
    DType("float64", 64),
    DType("float32", 32),
    DType("float16", 16),
    DType("bfloat16", 16),
    FP8,
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


def precision_of(name: str) -> str:
    """The precision of a model with codes of the type called `name`; empty where it is no type of codes."""
    return next((row.precision for row in DTYPES if row.name == name), "")
