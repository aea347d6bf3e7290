# SPDX-License-Identifier: Apache-2.0
"""Bars appear on a terminal only, and leave log lines whole."""

import io
import logging
import sys
from collections.abc import Callable

import pytest

from quantrt.log import setup_logging
from quantrt.report.progress import progress_bars


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """use_terminal() puts a terminal in the place of stderr; pytest's own capture starts after fixtures."""

    def use() -> Terminal:
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        return stream

    return use


def work(*, quiet: bool = False, total: int | None = 4) -> None:
    with progress_bars(quiet=quiet) as bars:
        advance = bars.counter("calibrating", "samples")
        for done in range(1, 5):
            advance(done, total)
            logging.getLogger("quantrt.test").info("sample %d is done", done)


def test_a_terminal_gets_bars_and_whole_log_lines(
    use_terminal: Callable[[], Terminal], capsys: pytest.CaptureFixture[str]
):
    terminal = use_terminal()
    setup_logging()
    work()
    text = terminal.getvalue()
    assert "calibrating" in text
    assert "4/4" in text
    assert all(f"sample {number} is done" in text for number in range(1, 5))
    assert capsys.readouterr().out == ""


def test_an_unknown_total_is_fine(use_terminal: Callable[[], Terminal]):
    terminal = use_terminal()
    setup_logging()
    work(total=None)
    assert "4/?" in terminal.getvalue()


def test_build_events_move_the_bars(use_terminal: Callable[[], Terminal]):
    from quantrt.build import Event

    terminal = use_terminal()
    setup_logging()
    with progress_bars(quiet=False) as bars:
        bars.on_event(Event("timing", 3, 9, "ms per candidate"))
    assert "timing" in terminal.getvalue()
    assert "3/9" in terminal.getvalue()
    assert "ms per candidate" in terminal.getvalue()


def test_quiet_shows_no_bars(use_terminal: Callable[[], Terminal]):
    terminal = use_terminal()
    setup_logging(quiet=True)
    work(quiet=True)
    assert terminal.getvalue() == ""


def test_a_pipe_gets_log_lines_only(capsys: pytest.CaptureFixture[str]):
    setup_logging()
    work()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"sample {number} is done" for number in range(1, 5)]


def test_logs_go_to_the_old_stream_afterwards(use_terminal: Callable[[], Terminal]):
    terminal = use_terminal()
    setup_logging()
    handler = logging.getLogger("quantrt").handlers[0]
    work()
    assert handler.stream is terminal
