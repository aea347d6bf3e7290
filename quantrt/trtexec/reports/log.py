# SPDX-License-Identifier: Apache-2.0
"""Lines as trtexec prints them: `[mm/dd/yyyy-hh:mm:ss] [I] text`.

Information goes to stdout, warnings and errors to stderr, as TensorRT's logger does it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TextIO

__all__ = ["Log", "LogHandler"]

_LETTERS = ((logging.ERROR, "E"), (logging.WARNING, "W"), (logging.INFO, "I"), (logging.DEBUG, "V"))


class Log:
    """Writes prefixed lines.

    Args:
        all_on_stderr: leaves stdout to something else.
        is_verbose: whether lines marked [V] are written.
        now: the present local time.
    """

    def __init__(
        self,
        *,
        all_on_stderr: bool = False,
        is_verbose: bool = False,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._all_on_stderr = all_on_stderr
        self._now = now
        self.is_verbose = is_verbose

    def info(self, text: str) -> None:
        """Lines marked [I]."""
        self._write("I", text)

    def warn(self, text: str) -> None:
        """Lines marked [W]."""
        self._write("W", text)

    def error(self, text: str) -> None:
        """Lines marked [E]."""
        self._write("E", text)

    def verbose(self, text: str) -> None:
        """Lines marked [V], when they are asked for."""
        if self.is_verbose:
            self._write("V", text)

    def mark(self, text: str) -> None:
        """A line without a prefix: the one that says that something began, passed or failed."""
        print(text, file=self._stream("I"), flush=True)

    def record(self, level: int, text: str) -> None:
        """Lines of a level of `logging`."""
        letter = next((letter for least, letter in _LETTERS if level >= least), "V")
        if letter != "V" or self.is_verbose:
            self._write(letter, text)

    def _stream(self, letter: str) -> TextIO:
        """Where lines go now: a progress bar may have put itself between."""
        return sys.stdout if letter in "IV" and not self._all_on_stderr else sys.stderr

    def _write(self, letter: str, text: str) -> None:
        prefix = f"[{self._now():%m/%d/%Y-%H:%M:%S}] [{letter}] "
        for line in text.split("\n"):
            print(prefix + line, file=self._stream(letter), flush=True)


class LogHandler(logging.Handler):
    """Sends what the package logs through a Log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._log.record(record.levelno, record.getMessage())
