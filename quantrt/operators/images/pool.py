# SPDX-License-Identifier: Apache-2.0
"""Average, maximum and Lp pools, over windows or over everything.

A window's maximum, sum and element count are those of its rows' maxima, sums and counts, so that pools
of any rank, padding, dilation and rounding are done axis by axis; torch's own kernels take what they can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from quantrt.operators.images.spatial import Window, make_window
from quantrt.operators.operator import Context, Operator

__all__ = [
    "OPERATORS",
    "average_pool",
    "global_average_pool",
    "global_lp_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "max_unpool",
]


def average_pool(
    x: torch.Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """The mean of each window; padding counts with count_include_pad, what ceil_mode adds never does."""
    window = make_window(
        x.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    functions = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)
    if _torch_can(window, x) and set(window.dilations) == {1} and not ceil_mode:
        return functions[x.dim() - 3](
            x, window.kernel, window.strides, window.before, count_include_pad=bool(count_include_pad)
        )
    total, count = x.to(torch.promote_types(x.dtype, torch.float32)), torch.ones((), device=x.device)
    for axis in range(2, x.dim()):
        places = _places(window, axis - 2, x.shape[axis], bool(ceil_mode), x.device)
        total = _windows(total, axis, places, 0).sum(axis + 1)
        low, high = 0, x.shape[axis]
        if count_include_pad:
            low, high = low - window.before[axis - 2], high + window.after[axis - 2]
        per_output = ((places >= low) & (places < high)).sum(1)
        count = count * per_output.reshape([-1] + [1] * (x.dim() - 1 - axis))
    return (total / count).to(x.dtype)


def max_pool(
    x: torch.Tensor,
    *,
    context: Context,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The maximum of each window and, if the node names it, its index in the flattened x, int64.

    Args:
        storage_order: 1 counts the spatial axes column by column.
    """
    window = make_window(
        x.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    if context.output_count > 1:
        return _max_with_indices(x, window, bool(ceil_mode), bool(storage_order))
    functions = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
    halves = all(pad <= size // 2 for pad, size in zip(window.before, window.kernel, strict=True))
    if _torch_can(window, x) and halves and not ceil_mode:
        function = functions[x.dim() - 3]
        return function(x, window.kernel, window.strides, window.before, window.dilations), None
    y = x
    for axis in range(2, x.dim()):
        places = _places(window, axis - 2, x.shape[axis], bool(ceil_mode), x.device)
        y = _windows(y, axis, places, _lowest(x)).amax(axis + 1)
    return y, None


def lp_pool(
    x: torch.Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """(sum of |x| ** p) ** (1 / p) of each window."""
    window = make_window(
        x.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    total = x.to(torch.promote_types(x.dtype, torch.float32)).abs() ** p
    for axis in range(2, x.dim()):
        places = _places(window, axis - 2, x.shape[axis], bool(ceil_mode), x.device)
        total = _windows(total, axis, places, 0).sum(axis + 1)
    return (total ** (1 / p)).to(x.dtype)


def global_average_pool(x: torch.Tensor) -> torch.Tensor:
    """The mean over all spatial axes, kept with size 1."""
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


def global_max_pool(x: torch.Tensor) -> torch.Tensor:
    """The maximum over all spatial axes, kept with size 1."""
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


def global_lp_pool(x: torch.Tensor, *, p: int = 2) -> torch.Tensor:
    """(sum of |x| ** p) ** (1 / p) over all spatial axes, kept with size 1."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32)).abs() ** p
    return (wide.sum(tuple(range(2, x.dim())), keepdim=True) ** (1 / p)).to(x.dtype)


def max_unpool(
    x: torch.Tensor,
    indices: torch.Tensor,
    output_shape: torch.Tensor | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> torch.Tensor:
    """The elements of a max pool back where they came from, 0 elsewhere.

    Args:
        indices: of MaxPool, counted in the flattened tensor of the size that the attributes tell.
        output_shape: a larger one, at whose beginning that lies.
    """
    rank = x.dim() - 2
    steps, pads = strides or [1] * rank, pads or [0] * (2 * rank)
    sizes = [
        (x.shape[2 + i] - 1) * steps[i] + kernel_shape[i] - pads[i] - pads[rank + i] for i in range(rank)
    ]
    small = x.new_zeros([*x.shape[:2], *sizes])
    small.view(-1)[indices.reshape(-1)] = x.reshape(-1)
    if output_shape is None:
        return small
    large = x.new_zeros(output_shape.tolist())
    large[tuple(slice(0, size) for size in small.shape)] = small
    return large


def _torch_can(window: Window, x: torch.Tensor) -> bool:
    halves = all(2 * pad <= size for pad, size in zip(window.before, window.kernel, strict=True))
    return 3 <= x.dim() <= 5 and window.is_symmetric and halves and x.is_floating_point()


def _places(window: Window, axis: int, size: int, is_ceil: bool, device: torch.device) -> torch.Tensor:
    """Input positions [outputs, kernel] that each output reads; those outside 0 .. size - 1 are padding."""
    stride, before = window.strides[axis], window.before[axis]
    if window.is_same:
        count = -(-size // stride)
    else:
        room = size + before + window.after[axis] - window.extents[axis]
        count = (-(-room // stride) if is_ceil else room // stride) + 1
        if is_ceil and (count - 1) * stride >= size + before:
            count -= 1  # a window that would start in the padding after the input is none
    starts = torch.arange(count, device=device) * stride - before
    return starts.reshape(-1, 1) + torch.arange(window.kernel[axis], device=device) * window.dilations[axis]


def _windows(x: torch.Tensor, axis: int, places: torch.Tensor, fill: float) -> torch.Tensor:
    """x with the axis replaced by two: outputs and what each reads; `fill` in the padding."""
    size = x.shape[axis]
    picked = x.index_select(axis, places.clamp(0, size - 1).reshape(-1))
    picked = picked.reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])
    inside = ((places >= 0) & (places < size)).reshape([*places.shape] + [1] * (x.dim() - 1 - axis))
    return torch.where(inside, picked, torch.full((), fill, dtype=x.dtype, device=x.device))


def _lowest(x: torch.Tensor) -> float:
    return -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min


def _max_with_indices(
    x: torch.Tensor, window: Window, is_ceil: bool, by_column: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Last axis first, the first maximum of each row: so the first in row-major order wins."""
    strides = [math.prod(x.shape[axis + 1 :]) for axis in range(2, x.dim())]
    if by_column:
        strides = [math.prod(x.shape[2:axis]) for axis in range(2, x.dim())]
    images = math.prod(x.shape[:2])
    base = torch.arange(images, device=x.device) * math.prod(x.shape[2:])
    index = base.reshape([*x.shape[:2]] + [1] * (x.dim() - 2)).expand(x.shape)
    y = x
    for axis in reversed(range(2, x.dim())):
        places = _places(window, axis - 2, x.shape[axis], is_ceil, x.device)
        values = _windows(y, axis, places, _lowest(x))
        best = values.argmax(axis + 1, keepdim=True)
        y = values.gather(axis + 1, best).squeeze(axis + 1)
        place = places.reshape([*places.shape] + [1] * (x.dim() - 1 - axis)).expand(values.shape)
        taken = _windows(index, axis, places, 0).gather(axis + 1, best).squeeze(axis + 1)
        index = taken + place.gather(axis + 1, best).squeeze(axis + 1) * strides[axis - 2]
    return y, index


OPERATORS = (
    Operator("AveragePool", 1, average_pool),
    Operator("MaxPool", 1, max_pool, takes_context=True),
    Operator("MaxUnpool", 9, max_unpool),
    Operator("LpPool", 2, lp_pool),
    Operator("GlobalAveragePool", 1, global_average_pool),
    Operator("GlobalMaxPool", 1, global_max_pool),
    Operator("GlobalLpPool", 2, global_lp_pool),
)
