# SPDX-License-Identifier: Apache-2.0
"""What callers ask of an engine's inputs and outputs: an element type and a layout for each, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quantrt.errors import UsageError, close_match
from quantrt.ir.layout import LAYOUTS, Layout, layout_named
from quantrt.ir.name_pattern import is_meant
from quantrt.ir.tensor_spec import TensorSpec

__all__ = ["FLOATS", "SHORT_NAMES", "TYPES", "Binding", "read_layouts", "read_types"]

TYPES: Mapping[str, str] = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
}
"""Short names of element types, which trtexec has too -> numpy's."""

SHORT_NAMES = {long: short for short, long in TYPES.items()}

FLOATS = ("float32", "float16", "bfloat16")
WHOLE = ("int64", "int32", "uint8", "int8", "bool")
"""From wide to narrow."""


@dataclass(frozen=True)
class Binding:
    """An element type that is not the model's own.

    Attributes:
        dtype: numpy's name.
        scale: of int8 codes of a float; None for values that are converted as they are, and for codes whose
            scale is to be that of calibration.
    """

    dtype: str
    scale: float | None = None


def read_types(
    texts: Sequence[str], specs: Sequence[TensorSpec], *, is_input: bool, flag: str
) -> dict[str, Binding]:
    """The element types that are asked for, by input or output; those the model has anyway are left out.

    Args:
        texts: "NAME:TYPE", "PATTERN:TYPE" with "*", "NAME:int8@SCALE", or "TYPE" for all; the last that names
            a tensor counts.
        specs: the model's inputs or outputs.
        flag: what to call their source in messages.

    Raises:
        UsageError: a name or a type is unknown, or a tensor cannot have the type.
    """
    found: dict[str, Binding] = {}
    by_name = {spec.name: spec for spec in specs}
    for name, text in _named(texts, by_name, flag, {**TYPES, **{long: long for long in SHORT_NAMES}}):
        binding = _binding(text, flag)
        reason = _why_not(by_name[name], binding, is_input=is_input)
        if reason is not None:
            what = "input" if is_input else "output"
            raise UsageError(
                f"{what} '{name}' cannot be {SHORT_NAMES[binding.dtype]}: {reason}",
                got=f"{by_name[name].dtype} in the model",
            )
        found[name] = binding
    return {name: binding for name, binding in found.items() if binding.dtype != by_name[name].dtype}


def read_layouts(texts: Sequence[str], specs: Sequence[TensorSpec], *, flag: str) -> dict[str, Layout]:
    """The layouts that are asked for, by input or output; the model's own are left out.

    Args:
        texts: "NAME:LAYOUT", with patterns, or "LAYOUT" for all, as for `read_types`.

    Raises:
        UsageError: a name or a layout is unknown, or a tensor cannot have the layout.
    """
    found: dict[str, Layout | None] = {}
    by_name = {spec.name: spec for spec in specs}
    known = {row.name: row.name for row in LAYOUTS} | {"nchw": "nchw", "ncdhw": "ncdhw"}
    for name, text in _named(texts, by_name, flag, known):
        found[name] = layout_named(text)
    for name, layout in found.items():
        if layout is not None:
            _check_layout(by_name[name], layout)
    return {name: layout for name, layout in found.items() if layout is not None}


def _named(
    texts: Sequence[str], specs: Mapping[str, TensorSpec], flag: str, words: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """(name, what is asked for) of every tensor that a text means, in the order given."""
    for text in texts:
        pattern, colon, wanted = text.rpartition(":")
        pattern = pattern.strip().strip("'\"")
        if not colon and wanted not in words and wanted.partition("@")[0] not in words:
            near = close_match(wanted, words) if wanted not in specs else None
            known = [word for word in words if word in TYPES or word not in SHORT_NAMES]
            raise UsageError(
                f"cannot read '{text}' of {flag}",
                expected="NAME:" + "|".join(known),
                hint=f"'{near}'" if near else f"{flag} {wanted}:{next(iter(words))}",
            )
        names = list(specs) if not colon else [name for name in specs if is_meant(name, pattern)]
        if not names:
            near = close_match(pattern, specs)
            raise UsageError(
                f"{flag}: the model has no '{pattern}'",
                expected=", ".join(specs) or "none",
                hint=f"{flag} {near}:{wanted}" if near else None,
            )
        yield from ((name, wanted.strip()) for name in names)


def _binding(text: str, flag: str) -> Binding:
    kind, at, number = text.partition("@")
    dtype = TYPES.get(kind, kind)
    if dtype not in SHORT_NAMES:
        near = close_match(kind, TYPES)
        raise UsageError(
            f"unknown element type '{kind}' of {flag}",
            expected="one of " + ", ".join(TYPES),
            hint=f"'{near}'" if near else None,
        )
    if not at:
        return Binding(dtype)
    try:
        scale = float(number)
    except ValueError:
        scale = 0.0
    with np.errstate(over="ignore"):
        is_positive = bool(0.0 < np.float32(scale) < np.inf)  # which codes are computed with
    if dtype != "int8" or not is_positive:
        raise UsageError(f"cannot read '{text}' of {flag}", expected="int8@SCALE with a scale above zero")
    return Binding(dtype, scale)


def _why_not(spec: TensorSpec, binding: Binding, *, is_input: bool) -> str | None:
    """Why a tensor cannot be passed in a type; None when it can."""
    own, dtype = spec.dtype, binding.dtype
    if binding.scale is not None and own not in FLOATS:
        return "only codes of floats have a scale"
    if own == dtype:
        return None
    if own in FLOATS:
        if dtype == "int8" and own != "float32":
            return "codes are of float32 alone"
        if dtype in FLOATS or dtype == "int8" or (dtype == "uint8" and is_input):
            return None
        return (
            "floats would be cut to whole numbers" if not is_input else "floats are given as floats or bytes"
        )
    if own in WHOLE and dtype in WHOLE:
        if is_input or dtype in ("int64", "int32"):
            return None
        return "its values may be larger" if own != "bool" or dtype == "bool" else None
    return f"{own} is not converted to it"


def _check_layout(spec: TensorSpec, layout: Layout) -> None:
    if spec.shape is None:
        raise UsageError(f"'{spec.name}' cannot be {layout.name}: the model does not tell its axes")
    try:
        layout.memory_shape(spec.shape)
    except UsageError as error:
        raise UsageError(f"'{spec.name}': {error.message}", expected=error.expected) from error
    free = [dim for dim in spec.shape[2:] if not isinstance(dim, int)]
    if layout.vector is not None and len(free) > 1:
        raise UsageError(
            f"'{spec.name}' cannot be {layout.name}: more than one of its sizes is free",
            got=str(spec),
            expected="one, at most, beside the batch",
            hint="nhwc, or a model with fixed sizes",
        )
