# SPDX-License-Identifier: Apache-2.0
"""Values of flags, from text. Every error names the flag and shows how its value is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quantrt.errors import UsageError, close_match
from quantrt.trtexec.flags.flags import BY_NAME

__all__ = [
    "IoFormat",
    "Shape",
    "read_files",
    "read_formats",
    "read_layers",
    "read_number",
    "read_percents",
    "read_pools",
    "read_shapes",
    "read_signed",
    "read_whole",
]

Shape = tuple[int, ...]

_UNITS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30}
POOLS = ("workspace", "dlaSRAM", "dlaLocalDRAM", "dlaGlobalDRAM", "tacticSharedMem")
TYPES = ("fp32", "fp16", "bf16", "int32", "int64", "int8", "uint8", "bool")
FORMATS = "chw chw2 hwc8 chw4 chw16 chw32 dhwc8 cdhw32 hwc dla_linear dla_hwc4 hwc16 dhwc".split()


@dataclass(frozen=True)
class IoFormat:
    """What one input or output is asked to be.

    Attributes:
        dtype: trtexec's name of the element type; None where it is the model's own.
        formats: any of these memory formats.
    """

    dtype: str | None
    formats: tuple[str, ...]


def read_whole(name: str, text: str, *, least: int = 0) -> int:
    """A whole number."""
    try:
        value = int(text)
    except ValueError:
        raise _wrong(name, text, "a whole number") from None
    if value < least:
        raise _wrong(name, text, f"at least {least}")
    return value


def read_number(name: str, text: str, *, least: float = 0.0) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        raise _wrong(name, text, "a number") from None
    if not math.isfinite(value) or value < least:
        raise _wrong(name, text, f"a number of at least {least:g}")
    return value


def read_shapes(name: str, text: str) -> dict[str, Shape]:
    """Shapes by input, or by a pattern of inputs with one "*".

    `input:1x3x224x224,'other:0':8x128,scalar:`; the name ends at the last colon.
    """
    found: dict[str, Shape] = {}
    for key, sizes in _once(name, _pairs(name, text)):
        if key.count("*") > 1:
            raise _wrong(name, key, "one '*' in a name, at most")
        found[key] = _shape(name, sizes)
    return found


def read_files(name: str, text: str) -> dict[str, Path]:
    """Files by input or output."""
    return {key: Path(value) for key, value in _once(name, _pairs(name, text))}


def read_layers(name: str, text: str) -> tuple[tuple[str, str], ...]:
    """(layer, type) in the order given, the last that fits counts; a layer may hold one "*"."""
    return tuple(_pairs(name, text))


def read_signed(name: str, text: str) -> tuple[tuple[str, bool], ...]:
    """Names with whether each is switched on: "+A,-B"."""
    parts = [part for part in text.split(",") if part]
    for part in parts:
        if part[0] not in "+-" or len(part) < 2:
            raise _wrong(name, part, "a name with + or - before it")
    found = {key: sign == "+" for key, sign in _once(name, ((part[1:], part[0]) for part in parts))}
    return tuple(found.items())


def read_pools(name: str, text: str) -> dict[str, float]:
    """Bytes by memory pool; a size without a unit is in MiB."""
    found = {}
    for pool, size in _once(name, _pairs(name, text)):
        if pool not in POOLS:
            near = close_match(pool, POOLS)
            raise UsageError(
                f"{name}: unknown memory pool '{pool}'",
                expected="one of " + ", ".join(POOLS),
                hint=f"{name}={near}:{size}" if near else None,
            )
        unit = size[-1:].upper()
        number = size[:-1] if unit in _UNITS else size
        found[pool] = read_number(name, number) * _UNITS.get(unit, 2**20)
    return found


def read_formats(name: str, text: str) -> tuple[IoFormat, ...]:
    """Types and formats of inputs or outputs in their order, or one for all: "fp32:chw,int8:chw4+chw32".

    trtexec 11 leaves the types out: "chw,hwc".
    """
    return tuple(_format(name, part) for part in text.split(","))


def read_percents(name: str, text: str) -> tuple[float, ...]:
    """Percentiles, each between 0 and 100."""
    values = tuple(read_number(name, part) for part in text.split(",") if part)
    for value in values:
        if value > 100:
            raise _wrong(name, f"{value:g}", "percentiles between 0 and 100")
    return values


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    """(key, value) of "key:value,..."; a key may hold colons, and stand in quotes."""
    for part in text.split(","):
        key, colon, value = part.strip().rpartition(":")
        key = key.strip().strip("'\"")
        if not colon or not key:
            raise _wrong(name, part, BY_NAME[name].form.value)
        yield key, value.strip()


def _once(name: str, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The pairs, unless one key has two values: which of them counted would be anyone's guess."""
    seen: dict[str, str] = {}
    for key, value in pairs:
        if seen.setdefault(key, value) != value:
            raise UsageError(
                f"{name} gives '{key}' two values", got=f"'{seen[key]}' and '{value}'", expected="one value"
            )
        yield key, value


def _shape(name: str, text: str) -> Shape:
    if text in ("", "scalar"):
        return ()
    sizes = text.lower().split("x")
    if not all(size.isdigit() for size in sizes):
        raise _wrong(name, text, "sizes joined by x, as in 1x3x224x224")
    return tuple(map(int, sizes))


def _format(name: str, text: str) -> IoFormat:
    kind, colon, formats = text.rpartition(":")
    dtype = kind if colon else None
    names = tuple(formats.split("+"))
    unknown = [word for word in names if word not in FORMATS]
    if unknown or (dtype is not None and dtype not in TYPES):
        known = TYPES if not unknown else FORMATS
        near = close_match(unknown[0] if unknown else kind, known)
        raise UsageError(
            f"cannot read '{text}' of {name}",
            expected="one of " + ", ".join(known),
            hint=f"'{near}'" if near else f"{name}=fp32:chw",
        )
    return IoFormat(dtype, names)


def _wrong(name: str, got: str, expected: str) -> UsageError:
    form = BY_NAME[name].form.value
    return UsageError(
        f"cannot read '{got}' of {name}",
        expected=expected,
        hint=f"{name}={form}" if form != expected else None,
    )
