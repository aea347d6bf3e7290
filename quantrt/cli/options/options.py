# SPDX-License-Identifier: Apache-2.0
"""Command-line options made of the config dataclasses: one option group per class, one option per field.

A field's name is its flag without the unit (`max_drop_ratio` is `--max-drop`); a repeatable field is in the
singular (`exclude_types` is `--exclude-type`); `metadata["flag"]` is another name, and values of a field with
`metadata["has_commas"]` may be joined by commas. An option that was not given is None: the defaults stay in
`quantrt.config`.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from quantrt.option_checks import check_choice

__all__ = ["add_config", "flag_of", "read_config"]

T = TypeVar("T")

_UNITS = ("_ratio", "_s", "_mb", "_db")


def add_config(
    parser: argparse.ArgumentParser, config: type[Any], title: str, *, skip: Collection[str] = ()
) -> None:
    """Add the options of one config dataclass as a group called `title`; fields in `skip` get no option."""
    group = parser.add_argument_group(title)
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        if field.name not in skip:
            group.add_argument(flag_of(field), **_settings(field, hints[field.name]))


def read_config(args: argparse.Namespace, config: type[T], **values: Any) -> T:
    """The dataclass with the options that were given; `values` sets fields that have no option.

    Raises:
        UsageError: a value is out of its bounds.
    """
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        given = getattr(args, field.name, None)
        if given is not None and field.name not in values:
            values[field.name] = tuple(given) if isinstance(given, list) else given
    return config(**values)


def flag_of(field: dataclasses.Field[Any]) -> str:
    """The long flag of a config field."""
    if "flag" in field.metadata:
        return str(field.metadata["flag"])
    name = field.name
    for unit in _UNITS:
        name = name.removesuffix(unit)
    if isinstance(field.default, tuple):
        name = f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")
    return "--" + name.replace("_", "-")


def _settings(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    """The keyword arguments of `add_argument` for one field."""
    settings: dict[str, Any] = {"dest": field.name, "default": None, "help": _help(field)}
    if isinstance(field.default, bool):
        settings["action"] = argparse.BooleanOptionalAction if field.default else "store_true"
        return settings
    choices = field.metadata.get("choices")
    if isinstance(field.default, tuple):
        settings["action"] = "extend" if field.metadata.get("has_commas") else "append"
    if field.metadata.get("has_commas"):
        settings.update(type=_split, metavar=field.metadata.get("metavar", "VALUE"))
    elif choices:
        settings.update(type=_one_of(flag_of(field), choices), choices=choices)
    else:
        settings.update(type=_scalar_type(hint), metavar=field.metadata.get("metavar", "VALUE"))
    return settings


def _help(field: dataclasses.Field[Any]) -> str:
    text: str = field.metadata["help"]
    if isinstance(field.default, bool) or field.default in (None, ()) or "default" in text:
        return text
    return f"{text} (default: {field.default})"


def _scalar_type(hint: Any) -> type[Any]:
    """int, float or str: what one value of the field is converted to."""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
    if hint not in (int, float, str):
        raise TypeError(f"no command-line option can hold a {hint}")
    return typing.cast("type[Any]", hint)


def _split(text: str) -> list[str]:
    """The values of "a,b"."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _one_of(flag: str, choices: tuple[str, ...]) -> Callable[[str], str]:
    """A converter that accepts only `choices` and names the nearest one otherwise."""

    def convert(text: str) -> str:
        check_choice("value", text, choices, where=f"of {flag}", hint=f"{flag} {{}}".format)
        return text

    return convert
