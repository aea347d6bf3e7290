# SPDX-License-Identifier: Apache-2.0
"""Optimization profiles: which shapes inputs may have, and at which of them kernels are chosen.

As text, one profile: NAME=MIN:OPT:MAX, sizes joined by "x", inputs by commas:

    images=1x3x224x224:8x3x224x224:32x3x224x224
    input_ids=1x1:8x128:32x512,attention_mask=1x1:8x128:32x512

A single shape stands for all three. An input that is not named follows the symbols of those that are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantrt.errors import UsageError, close_match
from quantrt.ir.tensor_spec import Dim, TensorSpec

__all__ = ["Profile", "ShapeRange", "at_shapes", "profile_rows", "profiles_from_rows", "read_profiles"]

Shape = tuple[int, ...]

_EXAMPLE = "images=1x3x224x224:8x3x224x224:32x3x224x224"


@dataclass(frozen=True)
class ShapeRange:
    """Shapes of one input: sizes lie between those of `least` and `most`; kernels are chosen at `best`."""

    least: Shape
    best: Shape
    most: Shape

    def admits(self, shape: Sequence[int]) -> bool:
        """Whether an input may have this shape."""
        return len(shape) == len(self.least) and all(
            low <= size <= high for low, size, high in zip(self.least, shape, self.most, strict=True)
        )

    def __str__(self) -> str:
        return ":".join("x".join(map(str, shape)) for shape in (self.least, self.best, self.most))


@dataclass(frozen=True)
class Profile:
    """A range of shapes for every input."""

    ranges: Mapping[str, ShapeRange]

    def admits(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Whether all inputs may have these shapes together."""
        return all(found.admits(shapes[name]) for name, found in self.ranges.items())

    @property
    def corners(self) -> tuple[dict[str, Shape], dict[str, Shape]]:
        """The least and the largest shapes of all inputs."""
        least = {name: found.least for name, found in self.ranges.items()}
        return least, {name: found.most for name, found in self.ranges.items()}

    @property
    def best(self) -> dict[str, Shape]:
        """The shapes that kernels are chosen at."""
        return {name: found.best for name, found in self.ranges.items()}

    def __str__(self) -> str:
        return ",".join(f"{name}={found}" for name, found in self.ranges.items())


def read_profiles(texts: Iterable[str], specs: Sequence[TensorSpec]) -> tuple[Profile, ...]:
    """The profiles of these texts for a model with these inputs, every input in each.

    Raises:
        UsageError: a text cannot be read, names no input, gives one a shape that it cannot have, or leaves a
            free size open.
    """
    return tuple(_completed(_parsed(text), specs) for text in texts)


def profile_rows(profiles: Iterable[Profile]) -> list[dict[str, list[list[int]]]]:
    """Profiles as JSON holds them."""
    return [
        {name: [list(found.least), list(found.best), list(found.most)] for name, found in item.ranges.items()}
        for item in profiles
    ]


def profiles_from_rows(rows: Any) -> tuple[Profile, ...]:
    """What `profile_rows` made.

    Raises:
        TypeError, ValueError, AttributeError: the rows are no profiles.
    """
    return tuple(
        Profile({str(name): ShapeRange(*map(_shape, found)) for name, found in row.items()}) for row in rows
    )


def at_shapes(arrays: Mapping[str, np.ndarray], shapes: Mapping[str, Shape]) -> dict[str, np.ndarray]:
    """The arrays cut, or repeated along their axes, to these shapes; those of other names as they are."""
    return {name: _at_shape(array, shapes.get(name, array.shape)) for name, array in arrays.items()}


def _at_shape(array: np.ndarray, shape: Shape) -> np.ndarray:
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            array = np.take(array, np.arange(size) % array.shape[axis], axis)
    return np.ascontiguousarray(array) if shape else array  # numpy would give a scalar an axis


def _parsed(text: str) -> Profile:
    ranges: dict[str, ShapeRange] = {}
    for part in text.split(","):
        name, _, sizes = part.rpartition("=")
        shapes = [_sizes(shape) for shape in sizes.split(":")]
        if not name or name in ranges or len(shapes) not in (1, 3) or None in shapes:
            raise UsageError(
                f"cannot read the shapes '{part}'",
                expected="INPUT=MIN:OPT:MAX, or INPUT=SHAPE for one",
                hint=f"--shapes {_EXAMPLE}",
            )
        given = [shape for shape in shapes if shape is not None]
        ranges[name] = ShapeRange(*(given * 3)[:3] if len(given) == 1 else given)
    return Profile(ranges)


def _sizes(text: str) -> Shape | None:
    sizes = text.split("x")
    return tuple(map(int, sizes)) if all(size.isdigit() and int(size) for size in sizes) else None


def _completed(profile: Profile, specs: Sequence[TensorSpec]) -> Profile:
    by_name = {spec.name: spec for spec in specs}
    symbols: dict[str, tuple[int, int, int]] = {}
    for name, found in profile.ranges.items():
        if name not in by_name:
            near = close_match(name, by_name)
            hint = f"--shapes {near}=..." if near else None
            raise UsageError(f"the model has no input '{name}'", expected=", ".join(by_name), hint=hint)
        _check(by_name[name], found, symbols)
    return Profile(
        {spec.name: profile.ranges.get(spec.name) or _implied(spec, symbols, profile) for spec in specs}
    )


def _check(spec: TensorSpec, found: ShapeRange, symbols: dict[str, tuple[int, int, int]]) -> None:
    """Fail unless the input can have these shapes; take the sizes of its symbols."""
    shapes = (found.least, found.best, found.most)
    rank = len(found.least) if spec.shape is None else len(spec.shape)
    if any(len(shape) != rank for shape in shapes):
        raise _wrong(spec, found, f"{rank} sizes in each shape")
    dims: tuple[Dim, ...] = (None,) * rank if spec.shape is None else spec.shape
    for dim, *sizes in zip(dims, *shapes, strict=True):
        least, best, most = sizes
        if not least <= best <= most:
            raise _wrong(spec, found, "sizes that grow from MIN to OPT to MAX")
        if isinstance(dim, int) and (least, most) != (dim, dim):
            raise _wrong(spec, found, str(spec))
        if isinstance(dim, str) and symbols.setdefault(dim, (least, best, most)) != (least, best, most):
            raise _wrong(spec, found, f"the same sizes wherever the model says '{dim}'")


def _implied(spec: TensorSpec, symbols: Mapping[str, tuple[int, int, int]], profile: Profile) -> ShapeRange:
    """The range of an input that is not named."""
    sizes = []
    for dim in (None,) if spec.shape is None else spec.shape:
        if isinstance(dim, int):
            sizes.append((dim, dim, dim))
        elif dim is not None and dim in symbols:
            sizes.append(symbols[dim])
        else:
            raise UsageError(
                f"the shapes '{profile}' leave a size of input '{spec.name}' open",
                got=str(spec),
                hint=f"--shapes {profile},{spec.name}=MIN:OPT:MAX",
            )
    least, best, most = (tuple(row[place] for row in sizes) for place in range(3))
    return ShapeRange(least, best, most)


def _wrong(spec: TensorSpec, found: ShapeRange, expected: str) -> UsageError:
    return UsageError(f"input '{spec.name}' cannot have these shapes", got=str(found), expected=expected)


def _shape(row: Any) -> Shape:
    if not isinstance(row, list) or any(type(size) is not int for size in row):
        raise TypeError(f"expected sizes, not {row!r}")
    return tuple(row)
