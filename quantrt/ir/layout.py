# SPDX-License-Identifier: Apache-2.0
"""Orders of axes that inputs and outputs may have in memory, against a model's own, channels before pixels.

TensorRT calls them formats: its HWC is "nhwc" here, its CHW32 is "nchw32". Nothing is padded: channels are a
multiple of a vector, or cannot have its layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from quantrt.errors import UsageError, close_match
from quantrt.ir.tensor_spec import Dim, TensorSpec

__all__ = ["LAYOUTS", "LINEAR", "Layout", "layout_named", "layout_of"]

Size = TypeVar("Size")
"""Of an axis: a number, or a symbol of any kind."""

LINEAR = ("nchw", "ncdhw", "linear")
"""Names of the model's own order: there is nothing to do."""


@dataclass(frozen=True)
class Layout:
    """One order of axes.

    Attributes:
        spatial: number of axes behind the channels in the model.
        vector: channels that lie side by side, all others being an axis before the pixels: [N, C / vector, H,
            W, vector]; None where all channels are innermost: [N, H, W, C].
    """

    name: str
    spatial: int
    vector: int | None = None

    @property
    def to_memory(self) -> tuple[int, ...]:
        """Where each axis in memory comes from, of the model's axes after the channels were split."""
        if self.vector is None:
            return (0, *range(2, 2 + self.spatial), 1)
        return (0, 1, *range(3, 3 + self.spatial), 2)

    @property
    def to_model(self) -> tuple[int, ...]:
        """The inverse of `to_memory`."""
        order = self.to_memory
        return tuple(order.index(axis) for axis in range(len(order)))

    def memory_shape(self, shape: Sequence[Size]) -> tuple[Size | int, ...]:
        """The shape in memory of a tensor with the model's shape [N, C, ...].

        Raises:
            UsageError: it has another rank, or its channels are no multiple of the vector.
        """
        if len(shape) != 2 + self.spatial:
            raise UsageError(
                f"a tensor with {len(shape)} axes cannot be {self.name}",
                expected=f"{2 + self.spatial} axes: batch, channels and {self.spatial} more",
            )
        batch, channels, *rest = shape
        if self.vector is None:
            return (batch, *rest, channels)
        if not isinstance(channels, int) or channels % self.vector:
            raise UsageError(
                f"{channels} channels cannot be {self.name}: nothing is padded here",
                expected=f"a multiple of {self.vector}",
            )
        return (batch, channels // self.vector, *rest, self.vector)

    def model_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The model's shape [N, C, ...] of a tensor with this shape in memory."""
        if self.vector is None:
            return (shape[0], shape[-1], *shape[1:-1])
        groups = shape[1]
        channels = groups * self.vector if isinstance(groups, int) else groups
        return (shape[0], channels, *shape[2:-1])

    def in_memory(self, spec: TensorSpec) -> TensorSpec:
        """A tensor of the model as it is with this layout.

        Raises:
            UsageError: as for `memory_shape`.
        """
        shape = None if spec.shape is None else self.memory_shape(spec.shape)
        return replace(spec, shape=shape, layout=self.name)

    def to_memory_array(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """An array with the model's axes, as it lies in memory."""
        if self.vector is not None:
            batch, channels, *rest = array.shape
            array = array.reshape(batch, channels // self.vector, self.vector, *rest)
        return np.ascontiguousarray(array.transpose(self.to_memory))

    def to_model_array(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The inverse of `to_memory_array`."""
        found = np.ascontiguousarray(array.transpose(self.to_model))
        return found if self.vector is None else found.reshape(len(found), -1, *found.shape[3:])


LAYOUTS = (
    Layout("nhwc", 2),
    Layout("ndhwc", 3),
    Layout("nchw2", 2, 2),
    Layout("nchw4", 2, 4),
    Layout("nchw16", 2, 16),
    Layout("nchw32", 2, 32),
    Layout("ncdhw32", 3, 32),
)


def layout_named(name: str) -> Layout | None:
    """The row called `name`; None for the model's own order.

    Raises:
        UsageError: there is no such layout; names the nearest.
    """
    lower = name.lower()
    if lower in LINEAR:
        return None
    for row in LAYOUTS:
        if row.name == lower:
            return row
    known = (*LINEAR[:2], *(row.name for row in LAYOUTS))
    near = close_match(lower, known)
    raise UsageError(
        f"unknown layout '{name}'", expected="one of " + ", ".join(known), hint=f"'{near}'" if near else None
    )


def layout_of(spec: TensorSpec) -> Layout | None:
    """The layout that a tensor has; None for the model's own order."""
    return layout_named(spec.layout) if spec.layout else None
