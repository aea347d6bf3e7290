# SPDX-License-Identifier: Apache-2.0
"""Runs of no samples: what comes out is known from shapes, and libraries do not take all of them.

    images [0,3,224,224] -> logits [0,1000]

OpenVINO has no MaxPool of an empty batch, ONNX Runtime no convolution over rows that there are none of; of a
GRU without samples it ends the process (1.32).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from quantrt.errors import DataError
from quantrt.ir.tensor_spec import Dim, TensorSpec
from quantrt.runtime.check_inputs import numpy_dtype

__all__ = ["Runs", "run_empty"]

Arrays = Mapping[str, np.ndarray[Any, Any]]
Specs = Sequence[TensorSpec]


class Runs(Protocol):
    """An executor, or a lane of one."""

    def run(self, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """As Executor.run."""


def run_empty(lane: Runs, arrays: Arrays, inputs: Specs, outputs: Specs) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs for inputs of which one or more have no values.

    Where every output has the size that is 0, all are empty: sizes that no input tells are those of a run of
    one sample, of zeros. Else the library computes them: past keys may be none, and there is an output.

    Args:
        arrays: by name, checked against `inputs`.

    Raises:
        DataError: the library refuses them; names the input that is empty.
    """
    sizes = _named_sizes(arrays, inputs)
    shapes = [_shape(spec, sizes) for spec in outputs]
    if not _is_named(arrays, inputs) or not all(0 in shape for shape in shapes):
        try:
            return lane.run(arrays)
        except DataError as error:
            raise _refused(error, arrays, inputs) from error
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        made = lane.run({name: _one_for_none(array) for name, array in arrays.items()})
        shapes = [_filled(shape, made[spec.name].shape) for spec, shape in zip(outputs, shapes, strict=True)]
    return {
        spec.name: np.empty(shape, numpy_dtype(spec.dtype) or np.object_)
        for spec, shape in zip(outputs, shapes, strict=True)
    }


def _named_sizes(arrays: Arrays, specs: Specs) -> dict[str, int]:
    """The free sizes of inputs by their names."""
    return {
        dim: size
        for spec in specs
        for dim, size in zip(spec.shape or (), arrays[spec.name].shape, strict=spec.shape is not None)
        if isinstance(dim, str)
    }


def _is_named(arrays: Arrays, specs: Specs) -> bool:
    """Whether every size that is 0 has a name, by which outputs tell that it is theirs too."""
    return all(
        spec.shape is not None
        and all(
            isinstance(dim, str) or size
            for dim, size in zip(spec.shape, arrays[spec.name].shape, strict=True)
        )
        for spec in specs
    )


def _shape(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[Dim, ...]:
    """The shape of an output with its sizes as far as inputs tell them."""
    return tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape or ())


def _one_for_none(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Zeros with one for every size that is 0; an array with values as it is."""
    return array if array.size else np.zeros([size or 1 for size in array.shape], array.dtype)


def _filled(shape: tuple[Dim, ...], made: tuple[int, ...]) -> tuple[int, ...]:
    """A shape whose unknown sizes are those of what was made."""
    return tuple(dim if isinstance(dim, int) else size for dim, size in zip(shape, made, strict=True))


def _refused(error: DataError, arrays: Arrays, inputs: Specs) -> DataError:
    spec = next(spec for spec in inputs if not arrays[spec.name].size)
    return DataError(
        f"cannot run input '{spec.name}' without a value in it: {error.message}",
        got=f"{list(arrays[spec.name].shape)}",
        expected=f"{spec}, with one value or more",
    )
