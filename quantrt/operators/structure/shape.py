# SPDX-License-Identifier: Apache-2.0
"""Shapes: reading them, changing them, reordering axes; the elements are only moved."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from quantrt.errors import ModelError
from quantrt.operators.element_types import restored, stored
from quantrt.operators.operator import Operator, Value

__all__ = [
    "OPERATORS",
    "depth_to_space",
    "expand",
    "flatten",
    "identity",
    "reshape",
    "shape",
    "size",
    "space_to_depth",
    "squeeze",
    "squeeze_by_attribute",
    "tile",
    "transpose",
    "trilu",
    "unsqueeze",
    "unsqueeze_by_attribute",
]


def identity(x: Value) -> Value:
    """Its input: a tensor, a sequence or an optional."""
    return x


def shape(x: torch.Tensor, *, start: int = 0, end: int | None = None) -> torch.Tensor:
    """Sizes of the axes from start to end, int64, on the device of x."""
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64, device=x.device)


def size(x: torch.Tensor) -> torch.Tensor:
    """Number of elements, int64 scalar."""
    return torch.tensor(x.numel(), dtype=torch.int64, device=x.device)


def reshape(x: torch.Tensor, target: torch.Tensor, *, allowzero: int = 0) -> torch.Tensor:
    """The same elements in another shape; 0 keeps a size unless allowzero, -1 is what remains."""
    sizes = [int(n) for n in target.tolist()]
    if not allowzero:
        sizes = [x.shape[axis] if n == 0 else n for axis, n in enumerate(sizes)]
    elif -1 in sizes and 0 in sizes:
        raise ModelError("a shape has both 0 and -1, which allowzero forbids", got=str(sizes))
    if -1 in sizes and x.numel() == 0:
        # torch cannot infer a size from nothing; ONNX says 0 unless the other sizes are 0 too.
        known = math.prod(n for n in sizes if n != -1)
        sizes = [0 if n == -1 and known else n for n in sizes]
    return x.reshape(sizes)


def flatten(x: torch.Tensor, *, axis: int = 1) -> torch.Tensor:
    """[prod(shape[:axis]), prod(shape[axis:])]."""
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def squeeze_by_attribute(x: torch.Tensor, *, axes: Sequence[int] | None = None) -> torch.Tensor:
    """Before opset 13: x without the axes of the attribute, which must have size 1."""
    return _squeeze(x, axes)


def squeeze(x: torch.Tensor, axes: torch.Tensor | None = None) -> torch.Tensor:
    """x without the given axes, which must have size 1; none given: without all of size 1."""
    return _squeeze(x, None if axes is None else axes.tolist())


def unsqueeze_by_attribute(x: torch.Tensor, *, axes: Sequence[int]) -> torch.Tensor:
    """Before opset 13: x with axes of size 1 at the places of the attribute, counted in the result."""
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def unsqueeze(x: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
    """x with axes of size 1 at the given places, counted in the result."""
    return unsqueeze_by_attribute(x, axes=axes.reshape(-1).tolist())


def transpose(x: torch.Tensor, *, perm: Sequence[int] | None = None) -> torch.Tensor:
    """Axes in the order perm; reversed when it is not given."""
    return x.permute(tuple(range(x.dim()))[::-1] if perm is None else tuple(perm))


def expand(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """x broadcast with the shape; a size 1 of the shape keeps that of x."""
    other = x.new_empty(()).expand(tuple(target.tolist()))
    whole: torch.Tensor = torch.broadcast_tensors(x, other)[0]  # type: ignore[no-untyped-call]
    return whole.clone()


def tile(x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
    """x repeated along each axis."""
    return x.repeat(tuple(repeats.tolist())) if x.dim() else x


def trilu(x: torch.Tensor, k: torch.Tensor | None = None, *, upper: int = 1) -> torch.Tensor:
    """The upper or lower triangle of the last two axes from diagonal k on, 0 elsewhere."""
    diagonal = 0 if k is None else int(k.item())
    return restored((torch.triu if upper else torch.tril)(stored(x), diagonal), x.dtype)


def depth_to_space(x: torch.Tensor, *, blocksize: int, mode: str = "DCR") -> torch.Tensor:
    """[N, C*b*b, H, W] to [N, C, H*b, W*b].

    DCR: the block is the outer part of the channel, CRD: the inner part.
    """
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        blocks = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // (b * b), h * b, w * b)


def space_to_depth(x: torch.Tensor, *, blocksize: int, mode: str = "DCR") -> torch.Tensor:
    """[N, C, H*b, W*b] to [N, C*b*b, H, W]; the reverse of depth_to_space with the same mode."""
    n, c, h, w = x.shape
    b = blocksize
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.permute(order).reshape(n, c * b * b, h // b, w // b)


def _squeeze(x: torch.Tensor, axes: Sequence[int] | None) -> torch.Tensor:
    if axes is None:
        return x.reshape([n for n in x.shape if n != 1])
    dropped = {axis % x.dim() for axis in axes} if x.dim() else set()
    wrong = [axis for axis in sorted(dropped) if x.shape[axis] != 1]
    if wrong:
        raise ModelError("only axes of size 1 can be squeezed", got=f"axes {wrong} of shape {list(x.shape)}")
    return x.reshape([n for axis, n in enumerate(x.shape) if axis not in dropped])


OPERATORS = (
    Operator("Identity", 1, identity),
    Operator("Shape", 1, shape),
    Operator("Size", 1, size),
    Operator("Reshape", 5, reshape, moves=True),
    Operator("Flatten", 1, flatten, moves=True),
    Operator("Squeeze", 1, squeeze_by_attribute, until=12, moves=True),
    Operator("Squeeze", 13, squeeze, moves=True),
    Operator("Unsqueeze", 1, unsqueeze_by_attribute, until=12, moves=True),
    Operator("Unsqueeze", 13, unsqueeze, moves=True),
    Operator("Transpose", 1, transpose, moves=True),
    Operator("Expand", 8, expand, moves=True),
    Operator("Tile", 6, tile, moves=True),
    Operator("Trilu", 14, trilu),
    Operator("DepthToSpace", 1, depth_to_space, moves=True),
    Operator("SpaceToDepth", 1, space_to_depth, moves=True),
)
