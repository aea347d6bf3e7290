# SPDX-License-Identifier: Apache-2.0
"""Tensors from nothing but attributes and shapes: constants, ranges, random numbers; and Dropout."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import restored, stored, torch_type
from quantrt.operators.operator import Context, Operator

__all__ = [
    "OPERATORS",
    "constant",
    "constant_of_shape",
    "dropout",
    "dropout_by_attribute",
    "eye_like",
    "random_normal",
    "random_normal_like",
    "random_uniform",
    "random_uniform_like",
    "range_",
]

_FLOAT = 1  # ONNX's number of float32


def constant(
    *,
    context: Context,
    value: torch.Tensor | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
) -> torch.Tensor:
    """The one attribute that is given, as a tensor."""
    if value is not None:
        return value
    for floats in (value_float, value_floats):
        if floats is not None:
            return torch.tensor(floats, dtype=torch.float32, device=context.device)
    for ints in (value_int, value_ints):
        if ints is not None:
            return torch.tensor(ints, dtype=torch.int64, device=context.device)
    raise ModelError("a Constant has no value", expected="value, value_float(s) or value_int(s)")


def constant_of_shape(shape: torch.Tensor, *, value: torch.Tensor | None = None) -> torch.Tensor:
    """A tensor of the shape filled with the value; float32 0 when it is not given."""
    sizes = tuple(shape.tolist())
    if value is None:
        return torch.zeros(sizes, device=shape.device)
    return restored(stored(value).reshape(()).expand(sizes).clone(), value.dtype)


def eye_like(x: torch.Tensor, *, dtype: int | None = None, k: int = 0) -> torch.Tensor:
    """1 on diagonal k of a matrix shaped like x, 0 elsewhere."""
    ones = torch.ones(x.shape, device=x.device)
    return torch.triu(torch.tril(ones, k), k).to(x.dtype if dtype is None else torch_type(dtype))


def range_(
    start: torch.Tensor, limit: torch.Tensor, delta: torch.Tensor, *, stash_type: int = _FLOAT
) -> torch.Tensor:
    """start + i * delta for i in 0 .. ceil((limit - start) / delta) - 1, in the type of start.

    Args:
        stash_type: precision of the sum for 16-bit floats; it is at least that here: float64.
    """
    del stash_type
    first, last, step = start.item(), limit.item(), delta.item()
    if step == 0:
        raise ModelError("a Range has a step of 0")
    if start.is_floating_point():
        count = max(math.ceil((last - first) / step), 0)
        steps = torch.arange(count, device=start.device, dtype=torch.float64)
        return (first + steps * step).to(start.dtype)
    return torch.tensor(range(int(first), int(last), int(step)), dtype=start.dtype, device=start.device)


def random_normal(
    *,
    context: Context,
    shape: Sequence[int],
    dtype: int = _FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> torch.Tensor:
    """Normal numbers. A seed makes runs on one device alike; ONNX fixes no generator."""
    drawn = torch.randn(tuple(shape), generator=_generator(context.device, seed), device=context.device)
    return (mean + scale * drawn).to(torch_type(dtype))


def random_normal_like(
    x: torch.Tensor,
    *,
    context: Context,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> torch.Tensor:
    """Normal numbers in the shape of x."""
    drawn = random_normal(context=context, shape=x.shape, mean=mean, scale=scale, seed=seed)
    return drawn.to(x.dtype if dtype is None else torch_type(dtype))


def random_uniform(
    *,
    context: Context,
    shape: Sequence[int],
    dtype: int = _FLOAT,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> torch.Tensor:
    """Numbers uniform in [low, high)."""
    drawn = torch.rand(tuple(shape), generator=_generator(context.device, seed), device=context.device)
    return (low + (high - low) * drawn).to(torch_type(dtype))


def random_uniform_like(
    x: torch.Tensor,
    *,
    context: Context,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> torch.Tensor:
    """Numbers uniform in [low, high) in the shape of x."""
    drawn = random_uniform(context=context, shape=x.shape, low=low, high=high, seed=seed)
    return drawn.to(x.dtype if dtype is None else torch_type(dtype))


def dropout_by_attribute(x: torch.Tensor, *, ratio: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Opsets 7 to 11, inference: x and a mask of ones."""
    del ratio
    return x, torch.ones_like(x, dtype=torch.bool)


def dropout(
    x: torch.Tensor,
    ratio: torch.Tensor | None = None,
    training_mode: torch.Tensor | None = None,
    *,
    context: Context,
    seed: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x; in training, x / (1 - ratio) where the mask holds and 0 elsewhere. And the mask, bool."""
    drop = 0.5 if ratio is None else float(ratio.item())
    if training_mode is None or not bool(training_mode.item()) or drop == 0:
        return x, torch.ones_like(x, dtype=torch.bool)
    drawn = torch.rand(x.shape, generator=_generator(context.device, seed), device=x.device)
    mask = drawn >= drop
    return torch.where(mask, x / (1 - drop), torch.zeros_like(x)), mask


def _generator(device: torch.device, seed: float | None) -> torch.Generator | None:
    """A generator of its own for a seed; None, torch's own, without one."""
    if seed is None:
        return None
    bits = int(torch.tensor(float(seed), dtype=torch.float64).view(torch.int64).item())
    return torch.Generator(device).manual_seed(bits & (2**63 - 1))


OPERATORS = (
    Operator("Constant", 1, constant, takes_context=True),
    Operator("ConstantOfShape", 9, constant_of_shape),
    Operator("EyeLike", 9, eye_like),
    Operator("Range", 11, range_),
    Operator("RandomNormal", 1, random_normal, takes_context=True),
    Operator("RandomNormalLike", 1, random_normal_like, takes_context=True),
    Operator("RandomUniform", 1, random_uniform, takes_context=True),
    Operator("RandomUniformLike", 1, random_uniform_like, takes_context=True),
    Operator("Dropout", 7, dropout_by_attribute, until=11),
    Operator("Dropout", 12, dropout, takes_context=True),
)
