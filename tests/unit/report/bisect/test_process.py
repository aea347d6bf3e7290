# SPDX-License-Identifier: Apache-2.0
"""A worker that dies or hangs is an answer, and the next question gets a new worker."""

import subprocess
import sys

import pytest

from quantrt.report.bisect import process as process_module
from quantrt.report.bisect.process import CRASHED, TrialProcess

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
DIES = "import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 11)"
STOPS = "import sys; sys.stdin.readline(); sys.exit(3)"
HANGS = "import sys, time; sys.stdin.readline(); time.sleep(60)"


def start(script: str):
    def started() -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    return started


@pytest.mark.parametrize(
    ("script", "says"), [(DIES, "killed by SIGSEGV"), (STOPS, "ended with status 3")], ids=["dies", "stops"]
)
def test_how_a_worker_died(script: str, says: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process_module, "_start", start(script))
    with TrialProcess() as process:
        assert process.ask({"run": "it"}) == {CRASHED: says}
        monkeypatch.setattr(process_module, "_start", start(ECHO))
        assert process.ask({"run": "again"}) == {"run": "again"}


def test_a_worker_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process_module, "_start", start(HANGS))
    monkeypatch.setattr(process_module, "LIMIT_S", 0.2)
    with TrialProcess() as process:
        assert process.ask({"run": "it"}) == {CRASHED: "took more than 0.2 s"}
