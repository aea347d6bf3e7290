# SPDX-License-Identifier: Apache-2.0
"""Reductions over axes. Older opsets give the axes as an attribute, newer ones as an input.

No axes: all of them, or none with noop_with_empty_axes. The result has the type of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from quantrt.operators.elementwise.unsigned import ordered
from quantrt.operators.operator import Operator

__all__ = ["OPERATORS", "arg_max", "arg_min", "cumulative_sum", "reduce_by_attribute", "reduce_by_input"]

Reduction = Callable[[torch.Tensor, tuple[int, ...], bool], torch.Tensor]
_TOP_BIT = -(2**63)


def reduce_by_attribute(
    x: torch.Tensor, *, reduction: Reduction, axes: Sequence[int] | None = None, keepdims: int = 1
) -> torch.Tensor:
    """`reduction` of x over the axes of the attribute."""
    return _reduce(x, reduction, axes or tuple(range(x.dim())), bool(keepdims))


def reduce_by_input(
    x: torch.Tensor,
    axes: torch.Tensor | None = None,
    *,
    reduction: Reduction,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> torch.Tensor:
    """`reduction` of x over the axes of the input."""
    chosen: Sequence[int] = () if axes is None else axes.tolist()
    if not chosen and not noop_with_empty_axes:
        chosen = tuple(range(x.dim()))
    return _reduce(x, reduction, chosen, bool(keepdims))


def arg_max(x: torch.Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> torch.Tensor:
    """Index of the first (or last) maximum along the axis, int64."""
    return _arg(torch.argmax, x, axis, keepdims, select_last_index)


def arg_min(x: torch.Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> torch.Tensor:
    """Index of the first (or last) minimum along the axis, int64."""
    return _arg(torch.argmin, x, axis, keepdims, select_last_index)


def cumulative_sum(
    x: torch.Tensor, axis: torch.Tensor, *, exclusive: int = 0, reverse: int = 0
) -> torch.Tensor:
    """Sum of all elements up to each one along the axis; exclusive leaves the element itself out."""
    dim = int(axis.item())
    x = x.flip(dim) if reverse else x
    if exclusive:
        x = torch.cat([torch.zeros_like(x.narrow(dim, 0, 1)), x.narrow(dim, 0, x.shape[dim] - 1)], dim)
    total = torch.cumsum(x, dim, dtype=x.dtype)
    return total.flip(dim) if reverse else total


def _reduce(x: torch.Tensor, reduction: Reduction, axes: Sequence[int], keepdims: bool) -> torch.Tensor:
    dims = tuple(sorted({axis % max(x.dim(), 1) for axis in axes})) if x.dim() else ()
    return reduction(x, dims, keepdims).to(x.dtype)


def _arg(
    function: Callable[..., torch.Tensor], x: torch.Tensor, axis: int, keepdims: int, last: int
) -> torch.Tensor:
    x = ordered(x)
    if last:
        return x.shape[axis] - 1 - function(x.flip(axis), dim=axis, keepdim=bool(keepdims))
    return function(x, dim=axis, keepdim=bool(keepdims))


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Floats for functions that have no integer form: the result is cast back and loses its fraction."""
    return x if x.is_floating_point() else x.to(torch.float64)


def _sum(x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    # An empty tuple means all axes to torch, none here.
    return x.sum(dims, keepdim=keepdims, dtype=x.dtype) if dims else x


def _mean(x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    if not dims:
        return x
    if x.is_floating_point():
        return x.mean(dims, keepdim=keepdims)
    count = 1
    for dim in dims:
        count *= x.shape[dim]
    return torch.div(x.sum(dims, keepdim=keepdims), count, rounding_mode="trunc")


def _prod(x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    for dim in reversed(dims):
        x = x.prod(dim, keepdim=keepdims, dtype=x.dtype)
    return x


def _extreme(largest: bool, x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    """Maximum or minimum; over nothing it is the end of the type's range."""
    if not dims:
        return x
    if any(x.shape[dim] == 0 for dim in dims):
        return _extreme_of_nothing(largest, x, dims, keepdims)
    function = torch.amax if largest else torch.amin
    found = function(ordered(x), dims, keepdim=keepdims)
    return (found ^ _TOP_BIT).view(torch.uint64) if x.dtype == torch.uint64 else found


def _extreme_of_nothing(
    largest: bool, x: torch.Tensor, dims: tuple[int, ...], keepdims: bool
) -> torch.Tensor:
    shape = [1 if dim in dims else size for dim, size in enumerate(x.shape)]
    if not keepdims:
        shape = [size for dim, size in enumerate(x.shape) if dim not in dims]
    if x.dtype == torch.bool:
        value: float = not largest
    elif x.is_floating_point():
        value = -torch.inf if largest else torch.inf
    else:
        limits = torch.iinfo(x.dtype)
        value = limits.min if largest else limits.max
    return torch.full(shape, value, dtype=x.dtype, device=x.device)


def _l1(x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    return _sum(x.abs(), dims, keepdims)


def _l2(x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    return _sum(_wide(x).square(), dims, keepdims).sqrt()


def _sum_square(x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    return _sum(x.square(), dims, keepdims)


def _log_sum(x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    return _sum(_wide(x), dims, keepdims).log()


def _log_sum_exp(x: torch.Tensor, dims: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    return torch.logsumexp(_wide(x), dims, keepdim=keepdims) if dims else x


def _rows(op_type: str, reduction: Reduction, input_since: int) -> tuple[Operator, Operator]:
    """The two rows of a reduction whose axes became an input in opset `input_since`."""
    return (
        Operator(op_type, 1, partial(reduce_by_attribute, reduction=reduction), until=input_since - 1),
        Operator(op_type, input_since, partial(reduce_by_input, reduction=reduction)),
    )


OPERATORS = (
    *_rows("ReduceL1", _l1, 18),
    *_rows("ReduceL2", _l2, 18),
    *_rows("ReduceLogSum", _log_sum, 18),
    *_rows("ReduceLogSumExp", _log_sum_exp, 18),
    *_rows("ReduceMax", partial(_extreme, True), 18),
    *_rows("ReduceMean", _mean, 18),
    *_rows("ReduceMin", partial(_extreme, False), 18),
    *_rows("ReduceProd", _prod, 18),
    *_rows("ReduceSum", _sum, 13),
    *_rows("ReduceSumSquare", _sum_square, 18),
    Operator("ArgMax", 1, arg_max),
    Operator("ArgMin", 1, arg_min),
    Operator("CumSum", 11, cumulative_sum),
)
