# SPDX-License-Identifier: Apache-2.0
"""What a caller passes, against what the engine takes. Cheap when right, explicit when wrong.

Nothing is converted: a float64 array for a float32 input is an error, for a cast costs time and hides where
the wrong type came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from quantrt.errors import DataError, close_match, first_line
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["InputCheck", "numpy_dtype"]

REMEMBERED_SHAPES = 256
"""Combinations of input shapes whose check is not repeated; all are forgotten when there are more."""

_EXTRA_DTYPES = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4")
}
_TEXT_KINDS = "OUST"

Shapes = tuple[tuple[int, ...], ...]


class InputCheck:
    """Checks inputs against specs: names, element types, ranks, fixed dimensions, equal symbols."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = tuple(specs)
        self._expected = tuple((spec.name, numpy_dtype(spec.dtype)) for spec in specs)
        self._accepted: set[Shapes] = set()

    def check(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The inputs as numpy arrays on the caller's memory, in the engine's order.

        Args:
            inputs: numpy arrays, or anything that speaks DLPack on the CPU, such as a torch tensor.

        Raises:
            DataError: names the input and what is wrong with it.
        """
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise self._not_a_mapping(inputs)
        arrays: dict[str, np.ndarray] = {}
        shapes = []
        for name, dtype in self._expected:
            if name not in inputs:
                raise self._wrong_names(inputs)
            array = inputs[name]
            if type(array) is not np.ndarray:
                array = _as_array(name, array)
            if array.dtype is not dtype and not _is_of(array, dtype):
                raise self._wrong_dtype(name, array)
            arrays[name] = array
            shapes.append(array.shape)
        if len(inputs) != len(arrays):
            raise self._wrong_names(inputs)
        self._accept(tuple(shapes))
        return arrays

    def check_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Names and shapes alone, of tensors that are on a device.

        Raises:
            DataError: names the input and what is wrong with it.
        """
        if shapes.keys() != {spec.name for spec in self._specs}:
            raise self._wrong_names(shapes)
        self._accept(tuple(shapes[spec.name] for spec in self._specs))

    def _accept(self, shapes: Shapes) -> None:
        if shapes in self._accepted:
            return
        self._check_shapes(shapes)
        if len(self._accepted) >= REMEMBERED_SHAPES:
            self._accepted = set()
        self._accepted.add(shapes)

    def _check_shapes(self, shapes: Shapes) -> None:
        symbols: dict[str, tuple[int, str]] = {}
        for spec, shape in zip(self._specs, shapes, strict=True):
            if spec.shape is None:
                continue
            if len(shape) != len(spec.shape):
                raise _wrong_shape(spec, shape, f"{len(shape)} dimensions instead of {len(spec.shape)}")
            for axis, (size, dim) in enumerate(zip(shape, spec.shape, strict=True)):
                if isinstance(dim, int) and size != dim:
                    raise _wrong_shape(spec, shape, f"{size} instead of {dim} on axis {axis}")
                if isinstance(dim, str):
                    known, owner = symbols.setdefault(dim, (size, spec.name))
                    if known != size:
                        raise _wrong_shape(spec, shape, f"{dim} is {size} here and {known} in '{owner}'")

    def _wrong_names(self, inputs: Mapping[str, Any]) -> DataError:
        known = [spec.name for spec in self._specs]
        missing = [name for name in known if name not in inputs]
        unknown = [str(name) for name in inputs if name not in known]
        expected = ", ".join(str(spec) for spec in self._specs)
        if unknown:
            near = close_match(unknown[0], missing or known)
            return DataError(
                f"the engine has no input '{unknown[0]}'",
                expected=expected,
                hint=f"'{near}'" if near else None,
            )
        return DataError(
            f"input '{missing[0]}' was not given", got=", ".join(inputs) or "none", expected=expected
        )

    def _wrong_dtype(self, name: str, array: np.ndarray) -> DataError:
        spec = next(spec for spec in self._specs if spec.name == name)
        hint = "an array of str" if spec.dtype == "string" else f"`.astype(np.{spec.dtype})`"
        if spec.dtype in _EXTRA_DTYPES:
            hint = f"`.astype(ml_dtypes.{spec.dtype})`"
        if spec.scale is not None:
            hint = f"`np.clip(np.rint(x / {spec.scale:.9g}), -128, 127).astype(np.int8)`"
        return DataError(
            f"cannot run input '{name}': wrong element type",
            got=_dtype_text(array.dtype),
            expected=spec.dtype,
            hint=hint,
        )

    def _not_a_mapping(self, inputs: Any) -> DataError:
        names = ", ".join(f"'{spec.name}': ..." for spec in self._specs)
        return DataError(
            "cannot run these inputs",
            got=type(inputs).__name__,
            expected="arrays by name",
            hint=f"run({{{names}}})",
        )


def _wrong_shape(spec: TensorSpec, shape: tuple[int, ...], reason: str) -> DataError:
    return DataError(f"cannot run input '{spec.name}': {reason}", got=f"{list(shape)}", expected=str(spec))


def _as_array(name: str, value: Any) -> np.ndarray:
    """A view of what is not a plain numpy array."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if not hasattr(value, "__dlpack__"):
        raise DataError(
            f"cannot run input '{name}'",
            got=type(value).__name__,
            expected="a numpy array or a DLPack tensor on the CPU",
            hint="`np.asarray(...)` with the input's element type",
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(
            f"cannot run input '{name}': its {type(value).__name__} cannot be shared with numpy",
            got=first_line(error),
            expected="memory on the CPU, without gradient, of a type that numpy has",
            hint="`.detach().cpu()`",
        ) from error


def _is_of(array: np.ndarray, dtype: np.dtype[Any] | None) -> bool:
    """Whether an array has an element type; None is any of those of text."""
    return array.dtype.kind in _TEXT_KINDS if dtype is None else bool(array.dtype == dtype)


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """The numpy type; None for text, which numpy holds in several."""
    if name == "string":
        return None
    return _EXTRA_DTYPES.get(name) or np.dtype(name)


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.isnative else f"{dtype.name} of the other byte order"
