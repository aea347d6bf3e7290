# SPDX-License-Identifier: Apache-2.0
"""The inputs of an inference: their shapes, and values from files or at random."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from quantrt.calibrate.casts import numpy_dtype
from quantrt.calibrate.readers.random import free_size, random_values
from quantrt.errors import DataError, UsageError, close_match
from quantrt.ir.profile import Profile
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.flags.dims import model_shape
from quantrt.trtexec.flags.shapes import by_input, shape_text
from quantrt.trtexec.flags.values import Shape
from quantrt.trtexec.reports.log import Log

__all__ = ["check_profiles", "input_shapes", "is_fixed", "make_inputs", "read_raw"]

SEED = 0


def input_shapes(
    specs: Sequence[TensorSpec],
    given: Mapping[str, Shape],
    best: Mapping[str, Shape],
    out: Log,
    timed: Mapping[str, Shape] | None = None,
) -> dict[str, Shape]:
    """A shape for every input.

    Args:
        given: by name or pattern, of the command line.
        best: those of the profile.
        out: is told of free sizes that nobody gave.
        timed: in the engine's build, whose free sizes behind the first axis are taken then.

    Raises:
        UsageError: a name means no input, or an input cannot have its shape.
    """
    named = {**best, **by_input(given, specs)}
    usual = timed or {}
    return {spec.name: _shape(spec, named.get(spec.name), usual.get(spec.name, ()), out) for spec in specs}


def check_profiles(profiles: Iterable[Profile], shapes: Mapping[str, Shape]) -> None:
    """Fail unless one of the profiles, if there are any, admits these shapes.

    Raises:
        UsageError: none does.
    """
    profiles = tuple(profiles)
    if profiles and not any(profile.admits(shapes) for profile in profiles):
        raise UsageError(
            "these shapes are outside the profiles",
            got=",".join(f"{name}:{shape_text(shape)}" for name, shape in shapes.items()),
            expected=" or ".join(map(str, profiles)),
            hint="--minShapes and --maxShapes that include them",
        )


def is_fixed(spec: TensorSpec) -> bool:
    """Whether every size of an input is known."""
    return spec.shape is not None and all(isinstance(dim, int) for dim in spec.shape)


def make_inputs(
    specs: Sequence[TensorSpec], shapes: Mapping[str, Shape], files: Mapping[str, Path], out: Log
) -> dict[str, np.ndarray]:
    """An array per input: from its raw binary file, or random.

    Raises:
        UsageError: a file is for no input.
        DataError: a file cannot be read, or has not the size of its input.
    """
    names = [spec.name for spec in specs]
    for name in files:
        if name not in names:
            near = close_match(name, names)
            raise UsageError(
                f"the model has no input '{name}'",
                expected=", ".join(names),
                hint=f"'{near}'" if near else None,
            )
    rng = np.random.default_rng(SEED)
    found = {}
    for spec in specs:
        if spec.name in files:
            found[spec.name] = read_raw(
                files[spec.name], spec.dtype, shapes[spec.name], f"input '{spec.name}'"
            )
            out.info(f"Using values loaded from {files[spec.name]} for input {spec.name}")
        else:
            found[spec.name] = _random(spec, shapes[spec.name], rng)
            out.info(f"Using random values for input {spec.name}")
    return found


def read_raw(path: Path, dtype: str, shape: Shape, what: str) -> np.ndarray:
    """The array in a file that `numpy.ndarray.tofile` wrote.

    Args:
        what: what the file is for, in messages.

    Raises:
        DataError: there is no such file, or it has another size.
    """
    if dtype == "string":
        raise DataError(f"cannot read {what} from '{path}': text has no raw form")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {what} from '{path}'", got=error.strerror) from error
    kind = numpy_dtype(dtype)
    wanted = prod(shape) * kind.itemsize
    if len(data) != wanted:
        raise DataError(
            f"'{path}' is not the size of {what}",
            got=f"{len(data)} bytes",
            expected=f"{wanted}: {dtype} of shape {shape_text(shape)}",
            hint="--shapes, or `array.astype(...).tofile(...)`",
        )
    return np.frombuffer(data, kind).reshape(shape)


def _random(spec: TensorSpec, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    if spec.dtype == "string":
        raise UsageError(f"cannot make random values for input {spec}: it is text")
    return random_values(spec.dtype, shape, rng)


def _shape(spec: TensorSpec, shape: Shape | None, timed: Shape, out: Log) -> Shape:
    if shape is None:
        if spec.shape is None:
            raise UsageError(
                f"the shape of input '{spec.name}' is not known", hint=f"--shapes={spec.name}:..."
            )
        usual = timed if len(timed) == len(spec.shape) else (free_size(spec),) * len(spec.shape)
        defaults = [1, *usual[1:]]
        found = tuple(
            dim if isinstance(dim, int) else default
            for dim, default in zip(spec.shape, defaults, strict=True)
        )
        if is_fixed(spec):
            return found
        out.warn(
            f"Dynamic dimensions required for input: {spec.name}, but no shapes were provided. "
            f"Automatically overriding shape to: {shape_text(model_shape(spec, found))}"
        )
        return found
    fits = spec.shape is None or (
        len(shape) == len(spec.shape)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, shape, strict=True))
    )
    if not fits or 0 in shape:
        raise UsageError(
            f"input '{spec.name}' cannot have shape {shape_text(model_shape(spec, shape))}",
            expected=str(spec),
        )
    return shape
