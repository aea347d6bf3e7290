# SPDX-License-Identifier: Apache-2.0
"""What a cuDNN graph means, in torch: products summed in float64, then float32, each result rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from quantrt.plan.cudnn_plan import CudnnGraph
from quantrt.runtime.cuda.reference.evaluate import BINARY, UNARY
from quantrt.runtime.cuda.tensors import torch_dtype

__all__ = ["compute_graph"]

Tensor = torch.Tensor

_MEANING: Mapping[str, Callable[..., Tensor]] = {
    **UNARY,
    **BINARY,
    "identity": lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "quotient": lambda x, divisor, inverse: torch.div(x, divisor),
}


def compute_graph(graph: CudnnGraph, x: Tensor, weight: Tensor, operands: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph, in their element types.

    Args:
        x: [N, C, H, W], of any sizes that the convolution takes.
        weight: [K, R, S, C], or without R where it is 1.
        operands: in their order: [K], one element, or the output's shape.
    """
    sums = _convolved(graph, x, weight)
    registers = [sums]
    for kind, operand in zip(graph.operands, operands, strict=True):
        value = operand.float()
        registers.append(value.reshape(-1, 1, 1) if kind == "channel" else value)
    for op, args in graph.ops:
        registers.append(_MEANING[op](*(registers[arg] for arg in args)))
    return [_stored(registers[row].expand(sums.shape), kind) for row, kind in graph.outputs]


def _convolved(graph: CudnnGraph, x: Tensor, weight: Tensor) -> Tensor:
    top, left, bottom, right = graph.pads
    padded = torch.nn.functional.pad(x.double(), (left, right, top, bottom))
    K, C, R, S = graph.weight
    taps = weight.reshape(K, R, S, C).movedim(-1, 1).double()
    sums: Tensor = torch.nn.functional.conv2d(padded, taps, None, graph.strides, 0, graph.dilations)
    return sums.float()


def _stored(result: Tensor, kind: str) -> Tensor:
    if kind == "int8":
        codes = torch.clamp(torch.round(result), -128.0, 127.0)
        return torch.nan_to_num(codes, nan=-128.0).to(torch.int8)
    return result.to(torch_dtype(kind))
