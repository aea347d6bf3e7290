# SPDX-License-Identifier: Apache-2.0
"""Prefixes, and which stream a line goes to."""

import logging
from datetime import datetime

import pytest

from quantrt.trtexec.reports.log import Log, LogHandler


def now() -> datetime:
    return datetime(2026, 11, 21, 7, 8, 9)


def test_every_line_has_a_prefix_and_its_stream(capsys: pytest.CaptureFixture[str]):
    out = Log(now=now)
    out.info("one\ntwo")
    out.warn("careful")
    out.error("bad")
    out.verbose("unseen")
    out.mark("&&&& PASSED")
    found = capsys.readouterr()
    prefix = "[11/21/2026-07:08:09]"
    assert found.out == f"{prefix} [I] one\n{prefix} [I] two\n&&&& PASSED\n"
    assert found.err == f"{prefix} [W] careful\n{prefix} [E] bad\n"


def test_stdout_may_be_left_alone(capsys: pytest.CaptureFixture[str]):
    out = Log(all_on_stderr=True, is_verbose=True, now=now)
    out.info("one")
    out.verbose("two")
    out.mark("three")
    found = capsys.readouterr()
    assert found.out == ""
    assert [line[-3:] for line in found.err.splitlines()] == ["one", "two", "ree"]


@pytest.mark.parametrize(
    ("level", "letter", "stream"),
    [(logging.DEBUG, "V", 0), (logging.INFO, "I", 0), (logging.WARNING, "W", 1), (logging.CRITICAL, "E", 1)],
)
def test_what_the_package_logs(level: int, letter: str, stream: int, capsys: pytest.CaptureFixture[str]):
    handler = LogHandler(Log(is_verbose=True, now=now))
    handler.emit(logging.LogRecord("quantrt", level, __file__, 1, "%d of %d", (1, 2), None))
    assert capsys.readouterr()[stream] == f"[11/21/2026-07:08:09] [{letter}] 1 of 2\n"


def test_debug_records_need_verbose(capsys: pytest.CaptureFixture[str]):
    Log(now=now).record(logging.DEBUG, "node by node")
    assert capsys.readouterr() == ("", "")
