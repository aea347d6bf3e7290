# SPDX-License-Identifier: Apache-2.0
"""Taking tensors apart and putting them together: Slice, Split, Concat, Pad, ReverseSequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quantrt.errors import ModelError
from quantrt.operators.operator import Context, Operator

__all__ = [
    "OPERATORS",
    "concat",
    "pad",
    "pad_by_attribute",
    "reverse_sequence",
    "slice_",
    "slice_by_attribute",
    "split",
    "split_by_attribute",
]


def slice_by_attribute(
    x: torch.Tensor, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> torch.Tensor:
    """Before opset 10: x[starts:ends] along the axes."""
    return _slice(x, starts, ends, axes, None)


def slice_(
    x: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    axes: torch.Tensor | None = None,
    steps: torch.Tensor | None = None,
) -> torch.Tensor:
    """x[starts:ends:steps] along the axes; bounds beyond the size are held to it, as in Python."""
    return _slice(
        x,
        starts.tolist(),
        ends.tolist(),
        None if axes is None else axes.tolist(),
        None if steps is None else steps.tolist(),
    )


def split_by_attribute(
    x: torch.Tensor, *, context: Context, axis: int = 0, split: Sequence[int] | None = None
) -> tuple[torch.Tensor, ...]:
    """Before opset 13: parts of the sizes of the attribute, or equal parts, one per output."""
    return _split(x, axis, split, context.output_count)


def split(
    x: torch.Tensor,
    sizes: torch.Tensor | None = None,
    *,
    context: Context,
    axis: int = 0,
    num_outputs: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """Parts of the given sizes, or of equal size with a smaller last one."""
    return _split(x, axis, None if sizes is None else sizes.tolist(), num_outputs or context.output_count)


def concat(*tensors: torch.Tensor, axis: int) -> torch.Tensor:
    """The tensors one after the other along the axis."""
    return torch.cat(tensors, axis)


def pad_by_attribute(
    x: torch.Tensor, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0
) -> torch.Tensor:
    """Before opset 11: pads and value are attributes."""
    return _pad(x, pads, mode, torch.tensor(value, dtype=x.dtype, device=x.device), range(x.dim()))


def pad(
    x: torch.Tensor,
    pads: torch.Tensor,
    value: torch.Tensor | None = None,
    axes: torch.Tensor | None = None,
    *,
    mode: str = "constant",
) -> torch.Tensor:
    """x with elements added (or, where negative, removed) before and after each axis.

    Args:
        pads: counts before every axis, then counts after every axis.
        value: what a constant pad consists of; 0.
        axes: the axes that pads is about; all.
        mode: constant, edge, reflect (without the edge) or wrap.
    """
    chosen = range(x.dim()) if axes is None else [axis % x.dim() for axis in axes.tolist()]
    fill = torch.zeros((), dtype=x.dtype, device=x.device) if value is None else value.reshape(())
    return _pad(x, pads.tolist(), mode, fill, chosen)


def reverse_sequence(
    x: torch.Tensor, lengths: torch.Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> torch.Tensor:
    """The first lengths[b] steps of every sequence b reversed, the others where they were."""
    steps = torch.arange(x.shape[time_axis], device=x.device)
    bounds = lengths.reshape(-1, 1)
    source = torch.where(steps < bounds, bounds - 1 - steps, steps)  # [batch, time]
    moved = x.movedim((batch_axis, time_axis), (0, 1))
    rows = torch.arange(moved.shape[0], device=x.device).reshape(-1, 1)
    return moved[rows, source].movedim((0, 1), (batch_axis, time_axis))


def _slice(
    x: torch.Tensor,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> torch.Tensor:
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        picked = range(*slice(start, end, step).indices(x.shape[axis]))
        if step > 0:
            x = x[
                (slice(None),) * (axis % x.dim())
                + (slice(picked.start, max(picked.stop, picked.start), step),)
            ]
        else:
            x = x.index_select(axis, torch.tensor(picked, dtype=torch.int64, device=x.device))
    return x


def _split(x: torch.Tensor, axis: int, sizes: Sequence[int] | None, count: int) -> tuple[torch.Tensor, ...]:
    total = x.shape[axis]
    if sizes is None:
        step = -(-total // count)
        sizes = [max(min(step, total - step * part), 0) for part in range(count)]
    return tuple(torch.split(x, list(sizes), axis))


def _pad(
    x: torch.Tensor, pads: Sequence[int], mode: str, value: torch.Tensor, axes: Sequence[int]
) -> torch.Tensor:
    if len(pads) != 2 * len(axes):
        raise ModelError(
            "Pad wants two numbers per axis", got=f"{len(pads)} numbers", expected=f"{2 * len(axes)}"
        )
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        if before or after:
            positions = torch.arange(-before, x.shape[axis] + after, device=x.device)
            x = _pad_axis(x, axis, positions, mode, value)
    return x


def _pad_axis(
    x: torch.Tensor, axis: int, positions: torch.Tensor, mode: str, value: torch.Tensor
) -> torch.Tensor:
    """`x` read at `positions` of the axis, those outside it answered by the mode."""
    n = x.shape[axis]
    if mode == "constant":
        inside = (positions >= 0) & (positions < n)
        shape = [*x.shape[:axis], len(positions), *x.shape[axis + 1 :]]
        if n == 0:
            return value.expand(shape).clone()
        picked = x.index_select(axis, positions.clamp(0, n - 1))
        return torch.where(inside.reshape([-1] + [1] * (x.dim() - 1 - axis)), picked, value)
    if mode == "edge":
        source = positions.clamp(0, n - 1)
    elif mode == "wrap":
        source = positions % n
    elif mode == "reflect":
        period = max(2 * (n - 1), 1)
        source = positions % period
        source = torch.where(source < n, source, period - source)
    else:
        raise ModelError("unknown mode of Pad", got=mode, expected="constant, edge, reflect or wrap")
    return x.index_select(axis, source)


OPERATORS = (
    Operator("Slice", 1, slice_by_attribute, until=9, moves=True),
    Operator("Slice", 10, slice_, moves=True),
    Operator("Split", 2, split_by_attribute, until=12, moves=True, takes_context=True),
    Operator("Split", 13, split, moves=True, takes_context=True),
    Operator("Concat", 4, concat, moves=True),
    Operator("Pad", 2, pad_by_attribute, until=10),
    Operator("Pad", 11, pad, moves=True),
    Operator("ReverseSequence", 10, reverse_sequence, moves=True),
)
