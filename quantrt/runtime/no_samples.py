# SPDX-License-Identifier: Apache-2.0
"""Runs of no samples: what comes out is known from shapes alone, and libraries refuse some of them.

    images [0,3,224,224] -> logits [0,1000]

OpenVINO has no MaxPool of an empty batch, and ONNX Runtime no convolution over rows that there are none of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from quantrt.errors import DataError
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.runtime.check_inputs import numpy_dtype

__all__ = ["run_empty"]


class _Runs(Protocol):
    """An executor, or a lane of one."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """As Executor.run."""


def run_empty(
    lane: _Runs,
    arrays: Mapping[str, np.ndarray],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> dict[str, np.ndarray]:
    """Outputs for inputs of which one or more have no values, in the shapes that the specs tell.

    Where an output has values all the same, or a size that no input tells, the library computes them.

    Args:
        arrays: by name, checked against `inputs`.

    Raises:
        DataError: the library refuses them; names the input that is empty.
    """
    shapes = list(_known_shapes(arrays, inputs, outputs))
    if len(shapes) == len(outputs) and all(0 in shape for shape in shapes):
        return {
            spec.name: np.empty(shape, numpy_dtype(spec.dtype) or np.object_)
            for spec, shape in zip(outputs, shapes, strict=True)
        }
    try:
        return lane.run(arrays)
    except DataError as error:
        raise _refused(error, arrays, inputs) from error


def _known_shapes(
    arrays: Mapping[str, np.ndarray], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Iterator[tuple[int, ...]]:
    """Shapes of outputs whose sizes are fixed, or have the symbol of an input's size."""
    sizes = {
        dim: size
        for spec in inputs
        for dim, size in zip(spec.shape or (), arrays[spec.name].shape, strict=spec.shape is not None)
        if isinstance(dim, str)
    }
    for spec in outputs:
        dims = [sizes.get(dim) if isinstance(dim, str) else dim for dim in spec.shape or (None,)]
        known = tuple(dim for dim in dims if dim is not None)
        if len(known) == len(dims):
            yield known


def _refused(error: DataError, arrays: Mapping[str, np.ndarray], inputs: Sequence[TensorSpec]) -> DataError:
    spec = next(spec for spec in inputs if not arrays[spec.name].size)
    return DataError(
        f"cannot run input '{spec.name}' without a value in it: {error.message}",
        got=f"{list(arrays[spec.name].shape)}",
        expected=f"{spec}, of one sample or more: a size of the outputs is not known without a run",
        hint="one sample or more, and none of its outputs taken",
    )
