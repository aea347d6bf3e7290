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
        shape: one Dim per axis, as the array lies in memory; None when even the rank is unknown.
        scale: of int8 codes that mean floats, codes = clip(rint(x / scale), -128, 127); None for values that
            mean themselves.
        layout: name of the row of quantrt.ir.layout.LAYOUTS that the axes are in; empty for the model's own
            order of axes.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    scale: float | None = None
    layout: str = ""

    def __str__(self) -> str:
        """For example `image float32 [N,3,224,224]`, `image int8 [N,224,224,3] nhwc, scale 0.0078125`."""
        dims = "..." if self.shape is None else ",".join("?" if d is None else str(d) for d in self.shape)
        more = [self.layout] if self.layout else []
        more += [] if self.scale is None else [f"scale {self.scale:.6g}"]
        return f"{self.name} {self.dtype} [{dims}]" + (f" {', '.join(more)}" if more else "")
