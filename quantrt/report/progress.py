# SPDX-License-Identifier: Apache-2.0
"""Progress bars on stderr, when that is a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO, cast

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["Bars", "Progressing", "progress_bars"]


class Progressing(Protocol):
    """A build event: progress of one stage; `quantrt.prepare.Event` is one."""

    @property
    def stage(self) -> str:
        """What goes on."""

    @property
    def done(self) -> int:
        """How much of it is done, in `unit`."""

    @property
    def total(self) -> int | None:
        """How much there is; None when it is not known."""

    @property
    def unit(self) -> str:
        """What is counted."""


class Bars:
    """One bar per stage; without a terminal, nothing at all."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def counter(self, title: str, unit: str) -> Callable[[int, int | None], None]:
        """A callback (done, total) that moves the bar called `title`; total None draws a pulsing bar."""
        return lambda done, total: self._set(title, unit, done, total)

    def on_event(self, event: Progressing) -> None:
        """Show a build event."""
        self._set(event.stage, event.unit, event.done, event.total)

    def _set(self, title: str, unit: str, done: int, total: int | None) -> None:
        if self._progress is None:
            return
        if title not in self._tasks:
            self._tasks[title] = self._progress.add_task(title, total=total, unit=unit)
        self._progress.update(self._tasks[title], completed=done, total=total)


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[Bars]:
    """Bars for the time of a `with` block; log lines are printed above them."""
    if quiet or not sys.stderr.isatty():
        yield Bars(None)
        return
    console = Console(file=sys.stderr)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with progress, _logs_above(console):
        yield Bars(progress)


@contextmanager
def _logs_above(console: Console) -> Iterator[None]:
    """Send log lines through the console, or the next redraw of a bar would cut through them."""
    handlers = [h for h in logging.getLogger("quantrt").handlers if isinstance(h, logging.StreamHandler)]
    proxy = cast("TextIO", FileProxy(console, sys.stderr))
    streams = [handler.setStream(proxy) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, streams, strict=True):
            if stream is not None:
                handler.setStream(stream)
