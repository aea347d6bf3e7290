# SPDX-License-Identifier: Apache-2.0
"""What the command line says about an exception, and the exit code it gives."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quantrt.cli.next_command import next_command, with_command
from quantrt.cli.signals import EndedBySignal
from quantrt.errors import DeviceError, InternalError, QuantRtError
from quantrt.ir.no_memory import NO_MEMORY_HINT

__all__ = ["INTERRUPTED", "Failure", "explain"]

INTERRUPTED = 130
"""128 + SIGINT, as shells report it; of another signal that ends a command 128 + its number."""


@dataclass(frozen=True)
class Failure:
    """An exception in words.

    Attributes:
        text: what stderr gets.
        data: the document that `--json` prints.
        exit_code: of the process.
        traceback: where it came from, for `--traceback`.
    """

    text: str
    data: dict[str, Any]
    exit_code: int
    traceback: str


def explain(error: BaseException, argv: Sequence[str] = (), verbs: Sequence[str] = ()) -> Failure:
    """The text, document and exit code for any exception; each but an interruption ends in what to try.

    Args:
        argv: the words of the command line that failed.
        verbs: names of all commands.
    """
    where = "".join(traceback.format_exception(error))
    interruption = _interruption(error)
    if interruption is not None:
        code = 128 + interruption.args[0] if isinstance(interruption, EndedBySignal) else INTERRUPTED
        data = {"type": "KeyboardInterrupt", "message": "interrupted", "exit_code": code}
        return Failure("interrupted", {"error": data}, code, where)
    known = error if isinstance(error, QuantRtError) else _as_known(error)
    hint = next_command(known, argv, verbs) if known.hint is None else with_command(known, argv, verbs)
    data = {
        "type": type(known).__name__,
        "message": known.message,
        "got": known.got,
        "expected": known.expected,
        "hint": hint,
        "exit_code": known.exit_code,
    }
    return Failure(f"error: {known.text(hint)}", {"error": data}, known.exit_code, where)


def _interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """What interrupted a command; a library that was just being imported makes an ImportError of it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return error
        error = error.__cause__ or error.__context__
    return None


def _as_known(error: BaseException) -> QuantRtError:
    """The QuantRtError that stands for an exception of another family."""
    if isinstance(error, MemoryError):
        return DeviceError("ran out of memory", got=str(error) or None, hint=NO_MEMORY_HINT)
    if (
        isinstance(error, ModuleNotFoundError | ImportError)
        and error.name
        and not error.name.startswith("quantrt")
    ):
        return DeviceError(
            f"the package '{error.name.split('.')[0]}' cannot be imported",
            got=str(error),
            hint="`pip install quantrt` again",
        )
    if isinstance(error, OSError) and error.errno is not None:
        what = f"'{os.fspath(error.filename)!s}'" if error.filename is not None else "a file"
        return DeviceError(f"cannot use {what}: {error.strerror}")
    return InternalError(
        f"{type(error).__name__}: {error}; this is a bug",
        hint="again with --traceback, and report what it prints",
    )
