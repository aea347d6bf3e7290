# SPDX-License-Identifier: Apache-2.0
"""What the options of `quantrt.config` are held against when they are made."""

from __future__ import annotations

from quantrt.errors import UsageError, close_match

__all__ = ["check_choice", "check_positive"]


def check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of `choices`; names the nearest.

    Args:
        what: how to call the value in the message, such as "range method".
    """
    if value not in choices:
        near = close_match(value, choices)
        raise UsageError(
            f"unknown {what} '{value}'",
            expected="one of " + ", ".join(choices),
            hint=f"'{near}'" if near else None,
        )


def check_positive(what: str, value: int) -> None:
    """Refuse a number below 1."""
    if value < 1:
        raise UsageError(f"cannot use this {what}", got=str(value), expected="at least 1")
