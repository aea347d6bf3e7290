# SPDX-License-Identifier: Apache-2.0
"""A worker that dies or hangs is an answer, and the next question gets a new worker."""

import io
import json
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from quantrt import worker_process
from quantrt.config import CompareConfig
from quantrt.errors import InternalError
from quantrt.report.bisect.bisect import WORKER
from quantrt.report.bisect.trials import DIFFERS, failure_in
from quantrt.report.bisect.worker import answer
from quantrt.worker_process import CRASHED, ERROR, FAULT, WorkerProcess, serve

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
DIES = "import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 11)"
STOPS = "import sys; sys.stdin.readline(); sys.exit(3)"
HANGS = "import sys, time; sys.stdin.readline(); time.sleep(60)"


def start(script: str):
    def started(*asked: object) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    return started


@pytest.mark.parametrize(
    ("script", "says"), [(DIES, "killed by SIGSEGV"), (STOPS, "ended with status 3")], ids=["dies", "stops"]
)
def test_how_a_worker_died(script: str, says: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_process, "_start", start(script))
    with closing(WorkerProcess(WORKER)) as process:
        assert process.ask({"run": "it"}) == {CRASHED: says}
        monkeypatch.setattr(worker_process, "_start", start(ECHO))
        assert process.ask({"run": "again"}) == {"run": "again"}


def test_a_worker_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_process, "_start", start(HANGS))
    monkeypatch.setattr(worker_process, "LIMIT_S", 0.2)
    with closing(WorkerProcess(WORKER)) as process:
        assert process.ask({"run": "it"}) == {CRASHED: "took more than 0.2 s"}


def test_a_fault_of_ours_is_no_crash_of_a_library(monkeypatch: pytest.MonkeyPatch):
    answers = io.StringIO()
    requests = ['{"run": "no.onnx", "library": "onnxruntime"}', '{"compare": null}']
    serve(answer, requests, answers)
    refused, faulty = map(json.loads, answers.getvalue().splitlines())
    assert ERROR in refused and FAULT in faulty
    monkeypatch.setattr(worker_process, "_start", start(ECHO))
    with (
        closing(WorkerProcess(WORKER)) as process,
        pytest.raises(InternalError, match="bisect.worker failed"),
    ):
        process.ask({FAULT: "TypeError: it"})


def test_another_shape_is_a_difference():
    wanted, got = {"y": np.ones((2, 3), np.float32)}, {"y": np.ones((3, 2), np.float32)}
    found = failure_in(wanted, got, ("y",), CompareConfig())
    assert found is not None
    assert found.kind == DIFFERS
    assert "[3, 2] instead of [2, 3]" in found.text
