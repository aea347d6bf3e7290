# SPDX-License-Identifier: Apache-2.0
"""One layer of an engine, as its library runs it: what every view of an engine's insides is made from.

What is not known is None or empty; nothing is ever guessed or filled in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quantrt.dtypes import DTYPES

__all__ = [
    "CHANNELS_LAST",
    "ROW_MAJOR",
    "EngineLayer",
    "Rival",
    "TensorForm",
    "bytes_moved",
    "elements",
    "is_conversion",
    "runs_nothing",
    "size_bytes",
]

ROW_MAJOR = "row major"
CHANNELS_LAST = "channels last"

_CONVERTERS = ("Reorder", "ReorderInput", "ReorderOutput", "Transpose", "Convert", "Cast")
"""Layer types of libraries that move elements, and compute nothing."""

_IDLE = ("View", "Host")
"""Kinds of layers of an engine for a GPU that run nothing on it, and so have no time."""

_BITS = {row.name: row.bits for row in DTYPES if row.bits}


@dataclass(frozen=True, kw_only=True)
class TensorForm:
    """One tensor that a layer reads or writes, in the form it has there.

    Attributes:
        name: of the value; in a program for a GPU of the buffer, "#int8" or "#fp8" behind it for codes.
        dims: sizes, a name where one is free; None where the rank is not known.
        dtype: numpy's name of the element type.
        layout: "row major", "channels last", or the library's word for another one.
    """

    name: str
    dims: tuple[int | str, ...] | None
    dtype: str
    layout: str


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Another way to run a layer that was considered and not taken.

    Attributes:
        name: "SOURCE: TACTIC".
        median_us: of one run, alone; None where it was not timed.
        reason: why it was not taken, one phrase.
    """

    name: str
    median_us: float | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class EngineLayer:
    """What one library runs as one step or kernel.

    Attributes:
        name: unique in its engine.
        kind: name of the region's formula in a program for a GPU, such as Conv, Gemm, Rows, View or Nodes;
            elsewhere the library's own layer type.
        nodes: of the canonical model, by name.
        sources: of the user's file, by name; those of `nodes` where a node has no others.
        precision: what its values are stored in: "int8", "fp8", "fp32", "fp16" or "bf16"; empty where it has
            none.
        computes_in: what it multiplies in; another than `precision` where codes are computed with in floats.
        reason: why it has that precision, one phrase; empty where that is not known.
        tactic: the kernel that runs it, "SOURCE: NAME"; None where there is no choice or none is told.
        rivals: the other ways, those that were timed first, the fastest ahead.
        median_us: of one run alone when the engine was built; None where it was not timed.
        bytes_moved: inputs, weights and outputs, each once; None where a size is free or not known.
        operations: two for every multiply-add of a product, at the sizes of `inputs`; None as before.
        inputs, outputs: activations, in the layer's order.
        weights: how many bytes of which element type (numpy's name) it reads of the engine's weights.
        attributes: of its operator, as far as known: kernel, strides, pads, dilations, groups, epilogue, ...
    """

    name: str
    kind: str
    nodes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    precision: str = ""
    computes_in: str = ""
    reason: str = ""
    tactic: str | None = None
    rivals: tuple[Rival, ...] = ()
    median_us: float | None = None
    bytes_moved: int | None = None
    operations: int | None = None
    inputs: tuple[TensorForm, ...] = ()
    outputs: tuple[TensorForm, ...] = ()
    weights: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


def elements(dims: tuple[int | str, ...] | None) -> int | None:
    """How many elements a tensor has; None where a size is free or not known."""
    if dims is None:
        return None
    sizes = [size for size in dims if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(dims) else None


def size_bytes(dims: tuple[int | str, ...] | None, dtype: str) -> int | None:
    """Bytes of a tensor; None as for `elements`, and for a type without a size."""
    count = elements(dims)
    return None if count is None or dtype not in _BITS else count * _BITS[dtype] // 8


def bytes_moved(forms: Iterable[TensorForm], weights: Mapping[str, int]) -> int | None:
    """Bytes of activations and weights together, each once; None where one of them is not known."""
    sizes = [size_bytes(form.dims, form.dtype) for form in dict.fromkeys(forms)]
    if any(size is None for size in sizes):
        return None
    return sum(size or 0 for size in sizes) + sum(weights.values())


def is_conversion(layer: EngineLayer) -> bool:
    """Whether a layer makes another form of one tensor, for which no node of the model asked."""
    if layer.nodes or not layer.inputs or len(layer.outputs) != 1:
        return False
    read, made = layer.inputs[0], layer.outputs[0]
    if layer.kind in _CONVERTERS:
        return True
    changes = read.dtype != made.dtype or read.layout != made.layout
    return changes and elements(read.dims) == elements(made.dims)


def runs_nothing(layer: EngineLayer) -> bool:
    """Whether a layer is another view of a tensor, or a size that the host knows."""
    return layer.kind in _IDLE
