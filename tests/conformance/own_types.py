# SPDX-License-Identifier: Apache-2.0
"""Arrays of ONNX's cases in the types that a model has once it is read: doubles are float32 there, and so is
bfloat16 on a CPU.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

__all__ = ["BFLOAT16", "in_own_types"]

BFLOAT16 = 2.0**-8
"""What numbers of bfloat16 are rounded by, relative to them."""


def in_own_types(arrays: Iterable[Any], values: Iterable[ir.Value]) -> list[Any]:
    """The arrays, those of another type than their values in the type of these."""
    return [_in_own_type(array, value) for array, value in zip(arrays, values, strict=True)]


def _in_own_type(array: Any, value: ir.Value) -> Any:
    if not isinstance(array, np.ndarray) or value.dtype != ir.DataType.FLOAT:
        return array
    return array.astype(np.float32)
