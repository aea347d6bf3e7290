# SPDX-License-Identifier: Apache-2.0
"""Runs models in a process of their own, and goes on when that process dies."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Any, Self, cast

from quantrt.errors import DeviceError, InternalError

__all__ = ["CRASHED", "FAULT", "LIMIT_S", "TrialProcess"]

LIMIT_S = 300.0
"""A run that takes longer hangs."""

CRASHED = "crashed"
"""The key of an answer that says how the process died."""

FAULT = "fault"
"""The key of an answer that says which error of our own ended a request."""


class TrialProcess:
    """One worker, started when first needed and again after it died; see `quantrt.report.bisect.worker`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer; {CRASHED: how} when it died or hung.

        Raises:
            DeviceError: a process cannot be started.
            InternalError: the worker failed, and not a library in it.
        """
        process = self._process = self._process or _start()
        pipe = cast("IO[bytes]", process.stdout)
        try:
            stdin = cast("IO[bytes]", process.stdin)
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it died; its answer says so
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            is_late = not selector.select(LIMIT_S)
        line = b"" if is_late else pipe.readline()
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            if FAULT in answer:
                raise InternalError("cannot run a part of the model", got=answer[FAULT])
            return answer
        if is_late:
            process.kill()
        status = process.wait()
        self.close()
        return {CRASHED: f"took more than {LIMIT_S:g} s" if is_late else _death(status)}

    def close(self) -> None:
        """End the worker."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def _start() -> subprocess.Popen[bytes]:
    """This Python with its path."""
    path = os.pathsep.join(folder or "." for folder in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "quantrt.report.bisect.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
    except OSError as error:
        raise DeviceError("cannot start a process to run models in", got=str(error)) from error


def _death(status: int) -> str:
    """How a process ended, such as "killed by SIGSEGV"."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
