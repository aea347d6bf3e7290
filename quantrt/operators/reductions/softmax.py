# SPDX-License-Identifier: Apache-2.0
"""Softmax, LogSoftmax and Hardmax along an axis; before opset 13 over all axes from one on."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from quantrt.operators.operator import Operator

__all__ = [
    "OPERATORS",
    "hardmax",
    "hardmax_of_rows",
    "log_softmax",
    "log_softmax_of_rows",
    "softmax",
    "softmax_of_rows",
]


def softmax(x: torch.Tensor, *, axis: int = -1) -> torch.Tensor:
    """exp(x) / sum(exp(x)) along the axis, its maximum subtracted first."""
    return torch.softmax(x, axis)


def log_softmax(x: torch.Tensor, *, axis: int = -1) -> torch.Tensor:
    """The logarithm of the softmax."""
    return torch.log_softmax(x, axis)


def hardmax(x: torch.Tensor, *, axis: int = -1) -> torch.Tensor:
    """1 at the first maximum along the axis, 0 elsewhere."""
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1)


def softmax_of_rows(x: torch.Tensor, *, axis: int = 1) -> torch.Tensor:
    """Softmax of x flattened to [prod(shape[:axis]), prod(shape[axis:])]."""
    return _of_rows(softmax, x, axis)


def log_softmax_of_rows(x: torch.Tensor, *, axis: int = 1) -> torch.Tensor:
    """LogSoftmax of x flattened to two axes."""
    return _of_rows(log_softmax, x, axis)


def hardmax_of_rows(x: torch.Tensor, *, axis: int = 1) -> torch.Tensor:
    """Hardmax of x flattened to two axes."""
    return _of_rows(hardmax, x, axis)


def _of_rows(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, axis: int) -> torch.Tensor:
    axis = axis + x.dim() if axis < 0 else axis
    rows = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return function(rows).reshape(x.shape)


OPERATORS = (
    Operator("Softmax", 1, softmax_of_rows, until=12),
    Operator("Softmax", 13, softmax),
    Operator("LogSoftmax", 1, log_softmax_of_rows, until=12),
    Operator("LogSoftmax", 13, log_softmax),
    Operator("Hardmax", 1, hardmax_of_rows, until=12),
    Operator("Hardmax", 13, hardmax),
)
