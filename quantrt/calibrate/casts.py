# SPDX-License-Identifier: Apache-2.0
"""Element types of data: what is cast without loss, and values that no calibration can use."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["cast_array", "check_finite", "int8_codes", "not_finite", "numpy_dtype"]

Array = npt.NDArray[Any]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The element type in numpy of a TensorSpec's."""
    if name == "string":
        return np.dtype(object)
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def int8_codes(array: Array, scale: float) -> Array:
    """Floats as codes: clip(rint(x / scale), -128, 127), rint half to even."""
    return np.clip(np.rint(array / np.float32(scale)), -128, 127).astype(np.int8)


def cast_array(array: Array, spec: TensorSpec, where: str, notes: set[str]) -> Array:
    """`array` in the element type of `spec`, its values checked.

    Floats go to floats of any width, and to the codes of an input that has a scale; whole numbers to whole
    numbers that hold them; such a cast is noted. Anything else is an error: a picture's uint8 needs a scale
    before it is a float.

    Raises:
        DataError: the element type does not fit, or a value is NaN or infinite.
    """
    want = numpy_dtype(spec.dtype)
    if spec.dtype == "string" and array.dtype.kind in "OUST":
        return array.astype(object)
    if array.dtype != want:
        if spec.scale is not None and _is_float(array.dtype):
            notes.add(f"input '{spec.name}': {array.dtype} data were quantized on the scale {spec.scale:.6g}")
            check_finite(array, f"input '{spec.name}'", where)
            return int8_codes(array, spec.scale)
        if not _is_castable(array, want):
            raise DataError(
                f"{where} does not fit input '{spec.name}'",
                got=f"element type {array.dtype}",
                expected=spec.dtype,
                hint=_cast_hint(array, want),
            )
        notes.add(f"input '{spec.name}': {array.dtype} data were cast to {spec.dtype}")
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which check_finite reports
            array = array.astype(want)
    check_finite(array, f"input '{spec.name}'", where)
    return array


def check_finite(array: Array, what: str, where: str) -> None:
    """Refuse NaN and infinities.

    Raises:
        DataError: names the tensor, the sample and the fraction.
    """
    if not _is_float(array.dtype):
        return
    bad = array.size - int(np.count_nonzero(np.isfinite(array)))
    if bad:
        raise not_finite(what, where, bad, array.size)


def not_finite(what: str, where: str, bad: int, size: int) -> DataError:
    """The error for `bad` of `size` values of a tensor."""
    return DataError(
        f"{what} has NaN or infinite values in {where}",
        got=f"{bad} of {size} values ({bad / size:.2%})",
        hint="to leave it out, or `numpy.nan_to_num` where 0 is what a missing value means",
    )


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == np.dtype(ml_dtypes.bfloat16)


def _is_castable(array: Array, want: np.dtype[Any]) -> bool:
    if _is_float(array.dtype) and _is_float(want):
        return True
    if array.dtype.kind in "iu" and want.kind in "iu":
        limits = np.iinfo(want)
        return not array.size or (int(array.min()) >= limits.min and int(array.max()) <= limits.max)
    return False


def _cast_hint(array: Array, want: np.dtype[Any]) -> str | None:
    if array.dtype == np.uint8 and _is_float(want):
        return "--preprocess with a scale, such as 'scale=1/255'; data without one would be guessed"
    return None
