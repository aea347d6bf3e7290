# SPDX-License-Identifier: Apache-2.0
"""Shapes of inputs with free sizes, given as NAME=1x384."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from quantrt.errors import UsageError, close_match
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["given_shapes", "parse_shape", "shapes_for", "usual_shapes", "with_shapes"]

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
    """The inputs of `model` with their free sizes set; sizes of one name are the same in all of them.

    Args:
        otherwise: what else there is to try, for the error's hint.

    Raises:
        UsageError: there is no such input, an input cannot have its shape, two give one size differently, or
            a free size other than the batch is given nowhere: made up it would make a latency meaningless.
    """
    names = [spec.name for spec in specs]
    for name in shapes:
        if name not in names:
            near = close_match(name, names)
            hint = f"--shape {near or names[0]}=..." if names else None
            raise UsageError(
                f"'{model}' has no input '{name}'", expected=", ".join(map(repr, names)), hint=hint
            )
    settled = [_with_shape(spec, shapes.get(spec.name), model) for spec in specs]
    sizes = _sizes_by_name(specs, shapes, model)
    settled = [_with_sizes(spec, sizes) for spec in settled]
    missing = [spec for spec in settled if spec.name not in shapes and _is_free(spec)]
    if missing:
        raise UsageError(
            f"cannot make up values for input '{missing[0].name}' of '{model}': its shape is free",
            got=str(missing[0]),
            hint=" ".join(_examples(missing)) + otherwise,
        )
    return settled


def shapes_for(specs: Sequence[TensorSpec], shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
    """The shapes, where every input can have its own among them; none otherwise."""
    is_theirs = all(
        spec.name in shapes and (spec.shape is None or _fits(shapes[spec.name], spec.shape)) for spec in specs
    )
    return shapes if is_theirs else {}


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


def _examples(specs: Sequence[TensorSpec]) -> Iterator[str]:
    """What to type for inputs with free sizes; those of one name are typed once."""
    sizes: dict[str, int] = {}
    for spec in (spec for spec in specs if _is_free(_with_sizes(spec, sizes))):
        known = _with_sizes(spec, sizes)
        found = usual_shapes([known]).get(spec.name)
        yield f"--shape {spec.name}=" + ("..." if found is None else "x".join(map(str, found)))
        named = zip(spec.shape or (), found or (), strict=False)
        sizes |= {dim: size for dim, size in named if isinstance(dim, str)}


def _sizes_by_name(specs: Sequence[TensorSpec], shapes: Mapping[str, Shape], model: str) -> dict[str, int]:
    """The free sizes that shapes give, by their names.

    Raises:
        UsageError: two shapes give one differently.
    """
    found: dict[str, tuple[int, str]] = {}
    for spec in specs:
        for dim, size in zip(spec.shape or (), shapes.get(spec.name, ()), strict=False):
            if isinstance(dim, str) and found.setdefault(dim, (size, spec.name))[0] != size:
                known, owner = found[dim]
                raise UsageError(
                    f"inputs '{owner}' and '{spec.name}' of '{model}' have the size '{dim}' in common",
                    got=f"{known} and {size}",
                    expected="the same in both",
                    hint=f"--shape {spec.name}=... with {known} for '{dim}'",
                )
    return {dim: size for dim, (size, _) in found.items()}


def _with_sizes(spec: TensorSpec, sizes: Mapping[str, int]) -> TensorSpec:
    """An input whose free sizes are set where their names are known."""
    if spec.shape is None:
        return spec
    return replace(
        spec, shape=tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)
    )


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
