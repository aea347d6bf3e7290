# SPDX-License-Identifier: Apache-2.0
"""What the options of `quantrt.config` are held against when they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quantrt.errors import UsageError, close_match

__all__ = ["check_choice", "check_positive", "check_type"]

MEANT = {"gpu": "cuda", "nvidia": "cuda"}
"""Words for a choice that are not like it."""


def check_choice(
    what: str,
    value: str,
    choices: Sequence[str],
    *,
    where: str = "",
    hint: Callable[[str], str] = "'{}'".format,
) -> None:
    """Refuse a value that is none of `choices`; names the nearest.

    Args:
        what: how to call the value in the message, such as "range method".
        where: it was given, the end of the message, such as "of --method".
        hint: what to try, of the nearest.
    """
    if value not in choices:
        meant = MEANT.get(value.partition(":")[0].lower())
        near = meant if meant in choices else close_match(value, choices)
        raise UsageError(
            f"unknown {what} '{value}' {where}".rstrip(),
            expected="one of " + ", ".join(choices),
            hint=hint(near) if near else None,
        )


def check_type(what: str, value: object, wanted: type) -> None:
    """Refuse what is no instance of a class of `quantrt.config`."""
    if not isinstance(value, wanted):
        raise UsageError(
            f"cannot use this {what}",
            got=f"{type(value).__name__} {value!r}"[:80],
            expected=f"a {wanted.__name__}",
            hint=f"`quantrt.config.{wanted.__name__}(...)`",
        )


def check_positive(what: str, value: int) -> None:
    """Refuse a number below 1."""
    if value < 1:
        raise UsageError(f"cannot use this {what}", got=str(value), expected="at least 1")
