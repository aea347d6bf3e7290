# SPDX-License-Identifier: Apache-2.0
"""Shapes of inputs: the profiles of a command line, and what they come to for a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from quantrt.errors import UsageError, close_match
from quantrt.ir.name_pattern import is_meant
from quantrt.ir.profile import ShapeRange
from quantrt.ir.tensor_spec import TensorSpec
from quantrt.trtexec.flags.dims import in_memory
from quantrt.trtexec.flags.parse import Given
from quantrt.trtexec.flags.values import Shape, read_shapes, read_whole

__all__ = ["GivenProfile", "by_input", "profile_text", "read_profiles_given", "shape_text"]

_KINDS = ("--minShapes", "--optShapes", "--maxShapes")


@dataclass(frozen=True)
class GivenProfile:
    """The shapes of one profile, by the input's name or a pattern of names."""

    least: Mapping[str, Shape] = field(default_factory=dict)
    best: Mapping[str, Shape] = field(default_factory=dict)
    most: Mapping[str, Shape] = field(default_factory=dict)

    def for_inputs(self, specs: Sequence[TensorSpec]) -> dict[str, ShapeRange]:
        """Ranges by input, for those that a name or pattern means.

        Raises:
            UsageError: a name means no input.
        """
        least, best, most = (by_input(shapes, specs) for shapes in (self.least, self.best, self.most))
        return {name: ShapeRange(least[name], shape, most[name]) for name, shape in best.items()}


def read_profiles_given(given: Given) -> tuple[GivenProfile, ...]:
    """The profiles of a command line in their order; none where no shapes are given.

    Raises:
        UsageError: a profile lacks one of min, opt and max, or two have the same number.
    """
    groups: dict[int, dict[str, dict[str, Shape]]] = {}
    number: int | None = None
    for flag, text in given.items:
        if flag.name == "--profile":
            number = read_whole("--profile", text)
            if number in groups:
                raise UsageError(f"--profile={number} is given twice")
            groups[number] = {}
        elif flag.name in _KINDS:
            group = groups.setdefault(0 if number is None else number, {})
            if flag.name in group:
                raise UsageError(
                    f"{flag.name} is given twice in one profile",
                    hint=f"--profile=N before each {flag.name}",
                )
            group[flag.name] = read_shapes(flag.name, text)
    if sorted(groups) != list(range(len(groups))):
        raise UsageError("profiles have to be numbered from 0 on", got=", ".join(map(str, groups)))
    return tuple(_complete(groups[index]) for index in sorted(groups))


def by_input(shapes: Mapping[str, Shape], specs: Sequence[TensorSpec]) -> dict[str, Shape]:
    """Shapes by the inputs that their names or patterns mean; a name goes before a pattern.

    Dimensions are given in the model's order of axes; those found are of the inputs' memory.

    Raises:
        UsageError: a name means no input, two patterns give an input different shapes, or its layout cannot
            have its shape.
    """
    names = [spec.name for spec in specs]
    found: dict[str, Shape] = {}
    by_pattern: dict[str, str] = {}
    for key in sorted(shapes, key=lambda key: "*" not in key):
        matching = [name for name in names if is_meant(name, key)]
        if not matching:
            near = close_match(key, names)
            raise UsageError(
                f"the model has no input '{key}'",
                expected=", ".join(names),
                hint=f"'{near}'" if near else _example(specs[0]) if specs else None,
            )
        for name in matching:
            if "*" in key and name not in shapes and shapes[by_pattern.setdefault(name, key)] != shapes[key]:
                raise UsageError(
                    f"two patterns give input '{name}' different shapes",
                    got=f"'{by_pattern[name]}' and '{key}'",
                    hint=f"'{name}' by its own name, which goes before patterns",
                )
            found[name] = shapes[key]
    return {spec.name: in_memory(spec, found[spec.name]) for spec in specs if spec.name in found}


def profile_text(ranges: Mapping[str, ShapeRange]) -> str:
    """A profile as `quantrt.ir.profile.read_profiles` reads it."""
    return ",".join(f"{name}={found}" for name, found in ranges.items())


def shape_text(shape: Iterable[int]) -> str:
    """`1x3x224x224`; `scalar` without sizes."""
    return "x".join(map(str, shape)) or "scalar"


def _example(spec: TensorSpec) -> str | None:
    """What gives an input its shape; free sizes are 1."""
    if spec.shape is None:
        return None
    return f"--shapes={spec.name}:{shape_text(size if isinstance(size, int) else 1 for size in spec.shape)}"


def _complete(group: Mapping[str, dict[str, Shape]]) -> GivenProfile:
    """A profile of the shapes that were given for it."""
    if set(group) not in ({"--optShapes"}, set(_KINDS)):
        missing = [kind for kind in _KINDS if kind not in group]
        raise UsageError(
            "a profile needs --optShapes alone, or all of min, opt and max",
            got=", ".join(group) or "none",
            hint=" and ".join(missing),
        )
    least, best, most = (group.get(kind, group["--optShapes"]) for kind in _KINDS)
    if not least.keys() == best.keys() == most.keys():
        raise UsageError(
            "the min, opt and max shapes of a profile name different inputs",
            got="; ".join(", ".join(shapes) for shapes in (least, best, most)),
        )
    return GivenProfile(least, best, most)
