# SPDX-License-Identifier: Apache-2.0
"""Every error QuantRT raises, as a tree, with the exit code each gives a command.

    QuantRtError
    ├── AccuracyError   1   a comparison or an accuracy check failed
    ├── UsageError      2   the caller asked for something impossible
    ├── ModelError      3   the model or the data cannot be used as they are
    │   └── DataError   3   calibration, validation or inference data
    ├── DeviceError     4   this machine cannot do it (device, disk, memory, library)
    └── InternalError  70   an invariant of QuantRT itself is broken

A message says what could not be done to which named object; the other fields say what was found, what
was expected and what to try, so that a user never has to read a traceback. An error that knows nothing to try
says where its kind is looked into.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "AccuracyError",
    "DataError",
    "DeviceError",
    "InternalError",
    "ModelError",
    "QuantRtError",
    "UsageError",
    "close_match",
    "first_line",
    "last_line",
]


class QuantRtError(Exception):
    """Base of all errors: a message and, where they help, got / expected / hint.

    Args:
        message: what could not be done, to which named object.
        got: what was found.
        expected: what would have been accepted.
        hint: the exact flag or call to try next; printed after "try ".
    """

    exit_code = 70
    next_step = "`quantrt doctor`"

    def __init__(
        self, message: str, *, got: str | None = None, expected: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.got = got
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        """The message, then one indented line for got/expected and one for what to try."""
        return self.text(self.hint or self.next_step)

    def text(self, to_try: str) -> str:
        """The same, with this to try."""
        facts = [f"{word} {text}" for word, text in (("got", self.got), ("expected", self.expected)) if text]
        lines = [self.message]
        if facts:
            lines.append("  " + ", ".join(facts))
        lines.append(f"  try {to_try}")
        return "\n".join(lines)


class AccuracyError(QuantRtError):
    """A comparison or an accuracy check failed.

    Args:
        report: all that was measured, JSON-ready, where there is more of it than a message holds.
    """

    exit_code = 1
    next_step = "`quantrt compare MODEL.onnx ENGINE.qrt --data P --layers`"

    def __init__(
        self,
        message: str,
        *,
        got: str | None = None,
        expected: str | None = None,
        hint: str | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, got=got, expected=expected, hint=hint)
        self.report = report


class UsageError(QuantRtError):
    """The caller asked for something that cannot be done as asked."""

    exit_code = 2
    next_step = "`help(quantrt)`, or `quantrt VERB -h`"


class ModelError(QuantRtError):
    """The model cannot be read, checked, or transformed."""

    exit_code = 3
    next_step = "`quantrt inspect MODEL.onnx`"


class DataError(ModelError):
    """Data for calibration, validation or inference does not fit the model."""

    next_step = "`quantrt inspect MODEL.onnx`, which tells what its inputs take"


class DeviceError(QuantRtError):
    """This machine cannot do it: a device, a library, disk or memory is missing."""

    exit_code = 4


class InternalError(QuantRtError):
    """An invariant of QuantRT itself is broken; please report it."""

    exit_code = 70
    next_step = "reporting it with its traceback and the output of `quantrt doctor --json`"


def close_match(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None when nothing is near."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def first_line(error: BaseException) -> str:
    """The first line of what an error of another library says that has text; without any its type's name."""
    return next(iter(_lines(error)), type(error).__name__)


def last_line(error: BaseException) -> str:
    """The last one."""
    return next(reversed(_lines(error)), type(error).__name__)


def _lines(error: BaseException) -> list[str]:
    return [line.strip() for line in str(error).splitlines() if line.strip()]
