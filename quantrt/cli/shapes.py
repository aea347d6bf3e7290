# SPDX-License-Identifier: Apache-2.0
"""Shapes of inputs with free sizes, given as NAME=1x384."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from quantrt.errors import UsageError, close_match
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["given_shapes", "parse_shape", "usual_shapes", "with_shapes"]

Shape = tuple[int, ...]


def parse_shape(text: str) -> tuple[str, Shape]:
    """NAME=1x384 -> ("NAME", (1, 384)).

    Raises:
        UsageError: the text has another form.
    """
    name, _, sizes = text.rpartition("=")
    if not name or not all(size.isdigit() and int(size) > 0 for size in sizes.split("x")):
        raise UsageError(
            f"cannot read the shape '{text}'", expected="NAME=SIZExSIZE", hint="--shape input_ids=1x384"
        )
    return name, tuple(int(size) for size in sizes.split("x"))


def given_shapes(pairs: Sequence[tuple[str, Shape]] | None) -> dict[str, Shape]:
    """The shapes of all --shape options by input.

    Raises:
        UsageError: one input is given two.
    """
    found: dict[str, Shape] = {}
    for name, shape in pairs or ():
        if found.setdefault(name, shape) != shape:
            texts = ("x".join(map(str, one)) for one in (found[name], shape))
            raise UsageError(f"--shape gives input '{name}' two shapes", got=" and ".join(texts))
    return found


def with_shapes(
    specs: Sequence[TensorSpec],
    shapes: Mapping[str, Shape],
    model: str,
    *,
    otherwise: str = ", or --data with real inputs",
) -> list[TensorSpec]:
    """The inputs of `model` with their free sizes set.

    Args:
        otherwise: what else there is to try, for the error's hint.

    Raises:
        UsageError: there is no such input, an input cannot have its shape, or one with a free size other than
            the batch is given none: a size made up would make a latency meaningless.
    """
    names = [spec.name for spec in specs]
    for name in shapes:
        if name not in names:
            near = close_match(name, names)
            hint = f"--shape {near or names[0]}=..." if names else None
            raise UsageError(
                f"'{model}' has no input '{name}'", expected=", ".join(map(repr, names)), hint=hint
            )
    missing = [spec for spec in specs if spec.name not in shapes and _is_free(spec)]
    if missing:
        raise UsageError(
            f"cannot make up values for input '{missing[0].name}' of '{model}': its shape is free",
            got=str(missing[0]),
            hint=" ".join(f"--shape {spec.name}={_example(spec)}" for spec in missing) + otherwise,
        )
    return [_with_shape(spec, shapes.get(spec.name), model) for spec in specs]


def usual_shapes(specs: Sequence[TensorSpec]) -> dict[str, Shape]:
    """Shapes that many models of the kind are used at, of inputs with free sizes other than the batch."""
    from quantrt.calibrate.readers.random import free_size

    return {
        spec.name: (
            *(size if isinstance(size, int) else 1 for size in spec.shape[:1]),
            *(size if isinstance(size, int) else free_size(spec) for size in spec.shape[1:]),
        )
        for spec in specs
        if spec.shape is not None and _is_free(spec)
    }


def _is_free(spec: TensorSpec) -> bool:
    return spec.shape is None or any(not isinstance(size, int) for size in spec.shape[1:])


def _example(spec: TensorSpec) -> str:
    found = usual_shapes([spec]).get(spec.name)
    return "..." if found is None else "x".join(map(str, found))


def _with_shape(spec: TensorSpec, shape: Shape | None, model: str) -> TensorSpec:
    if shape is None:
        return spec
    if spec.shape is not None and not _fits(shape, spec.shape):
        raise UsageError(f"input '{spec.name}' of '{model}' cannot have shape {shape}", expected=str(spec))
    return replace(spec, shape=shape)


def _fits(shape: Shape, wanted: tuple[int | str | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        not isinstance(size, int) or size == got for size, got in zip(wanted, shape, strict=True)
    )
