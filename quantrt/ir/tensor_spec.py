# SPDX-License-Identifier: Apache-2.0
"""Name, element type and shape of a model's input or output."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Dim", "TensorSpec"]

Dim = int | str | None
"""A size, a symbol shared between inputs and outputs, or unknown."""


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model.

    Attributes:
        name: the ONNX value's name.
        dtype: numpy's name of the element type, such as "float32"; "string" for text.
        shape: one Dim per axis; None when even the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None

    def __str__(self) -> str:
        """For example `image float32 [N,3,224,224]`."""
        dims = "..." if self.shape is None else ",".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name} {self.dtype} [{dims}]"
