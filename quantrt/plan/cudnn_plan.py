# SPDX-License-Identifier: Apache-2.0
"""What cuDNN is asked to compute in one kernel (CudnnGraph), and what it made of that (CudnnPlan).

    register 0                       sums: conv(x, w) rounded to float32; exact for int8 codes
    register 1 .. len(operands)      the operands
    the registers behind them        the results of `ops`, each in float32

"channel" operands are float32 [K], along axis 1 of the output; "scalar" ones float32 of one element; the
others tensors of the output's shape, named by their element type. No number is part of a graph, so that
layers that differ in their scales alone share a plan. Nothing here knows cuDNN or torch.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any

from quantrt.errors import ModelError

__all__ = ["OPS", "CudnnGraph", "CudnnPlan", "graph_from_json", "graph_key", "graph_to_json"]

UNARY = (
    "identity neg abs exp log sqrt rsqrt reciprocal erf tanh sigmoid softplus sin cos floor ceil relu gelu"
)

OPS = {
    **dict.fromkeys(UNARY.split(), 1),
    **dict.fromkeys("add sub mul div max min pow".split(), 2),
    "quotient": 3,
}
"""Arguments of every pointwise operation, under cuDNN's names; `gelu` is the one with erf. No word
of cuDNN's, quotient(x, s, 1 / s) is x / s correctly rounded, which its `div` is not."""

KINDS = ("channel", "scalar", "int8", "float16", "bfloat16", "float32")
TYPES = KINDS[2:]

KEY_DIGITS = 16
"""Hexadecimal digits of the digest: 64 bits, for at most thousands of plans."""

MAX_OPS = 256


@dataclass(frozen=True)
class CudnnGraph:
    """A convolution of two spatial axes with all that follows it, at one set of shapes.

    Attributes:
        x, weight: sizes [N, C, H, W] and [K, C, R, S]; channels-last in memory, as all tensors are.
        dtype: of both: int8 codes are summed in int32, floats in float32.
        strides, dilations: vertical, horizontal.
        pads: top, left, bottom, right.
        operands: the kind of each.
        ops: (a key of OPS, registers).
        outputs: (register, element type); an int8 output is clip(rint(register), -128, 127).
        rank: which of the engines that cuDNN proposes, from 0, the one that it expects to be fastest.
    """

    x: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    dtype: str
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    operands: tuple[str, ...]
    ops: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[int, str], ...]
    rank: int = 0

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """[N, K, P, Q]."""
        top, left, bottom, right = self.pads
        P, Q = (
            max(0, (size - dilation * (taps - 1) - 1) // stride + 1)
            for size, taps, stride, dilation in zip(
                (self.x[2] + top + bottom, self.x[3] + left + right),
                self.weight[2:],
                self.strides,
                self.dilations,
                strict=True,
            )
        )
        return self.x[0], self.weight[0], P, Q


@dataclass(frozen=True)
class CudnnPlan:
    """A graph as cuDNN compiled it for one GPU.

    Attributes:
        data: as cuDNN serialized it: machine code among it.
        workspace_bytes: device memory that a run needs beside its operands.
        cudnn: version of the library that made it and alone can read it, such as 91900.
        gpu: that it was made for, by name.
    """

    data: bytes
    workspace_bytes: int
    cudnn: int
    gpu: str


def graph_key(graph: CudnnGraph) -> str:
    """A name for the graph that is the same in every process: "cudnn.digest"."""
    text = json.dumps(graph_to_json(graph), sort_keys=True, separators=(",", ":"))
    return f"cudnn.{hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]}"


def graph_to_json(graph: CudnnGraph) -> dict[str, Any]:
    """The graph as JSON-ready data; tuples become lists."""
    return {item.name: _lists(getattr(graph, item.name)) for item in fields(graph)}


def graph_from_json(data: Any) -> CudnnGraph:
    """The graph that `graph_to_json` wrote.

    Raises:
        ModelError: the data do not describe one.
    """
    names = {item.name for item in fields(CudnnGraph)}
    if not isinstance(data, dict) or set(data) != names:
        got = ", ".join(sorted(map(str, data))) if isinstance(data, dict) else type(data).__name__
        raise ModelError("cannot read a cuDNN graph", got=got, expected=", ".join(sorted(names)))
    graph = CudnnGraph(**{name: _tuples(value) for name, value in data.items()})
    try:
        reason = _why_not(graph)
    except (TypeError, ValueError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}"
    if reason:
        raise ModelError(
            "cannot read a cuDNN graph",
            got=reason,
            hint="`quantrt build MODEL.onnx ... -o ENGINE.qrt` again, with this version",
        )
    return graph


def _why_not(graph: CudnnGraph) -> str:
    """What is wrong with a graph; empty where nothing is."""
    sizes = (*graph.x, *graph.weight, *graph.strides, *graph.dilations)
    counts = [len(row) for row in (graph.x, graph.weight, graph.strides, graph.dilations, graph.pads)]
    if counts != [4, 4, 2, 2, 4] or min(sizes) < 1 or min(graph.pads) < 0:
        return f"sizes {list(sizes)} and pads {list(graph.pads)}"
    if graph.dtype not in TYPES or not set(graph.operands) <= set(KINDS):
        return f"a product of {graph.dtype}, operands {', '.join(graph.operands)}"
    if len(graph.ops) > MAX_OPS:
        return f"{len(graph.ops)} operations"
    known = 1 + len(graph.operands)
    for number, (op, args) in enumerate(graph.ops, known):
        if len(args) != OPS[op] or not all(0 <= arg < number for arg in args):
            return f"'{op}' of registers {list(args)}"
    last = known + len(graph.ops)
    if type(graph.rank) is not int or graph.rank < 0:
        return f"the engine at {graph.rank!r}"
    if not graph.outputs or not all(0 <= row < last and kind in TYPES for row, kind in graph.outputs):
        return f"outputs {list(graph.outputs)}"
    return ""


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value
