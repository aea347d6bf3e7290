# SPDX-License-Identifier: Apache-2.0
"""Both ends of a process that does what may crash a library, and of which another survives the death.

One JSON request per line in, one JSON answer per line out.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from quantrt.errors import DeviceError, InternalError, QuantRtError

__all__ = ["CRASHED", "ERROR", "FAULT", "LIMIT_S", "WorkerProcess", "answer_requests", "serve"]

LIMIT_S = 300.0
"""A run that takes longer hangs."""

CRASHED = "crashed"
"""The key of an answer that says how the process died."""

ERROR = "error"
"""The key of an answer that says, in one line, why a library or a model was refused."""

FAULT = "fault"
"""The key of an answer that says which error of our own ended a request."""

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""What a worker makes of a request; raises QuantRtError where that is refused."""


class WorkerProcess:
    """One worker, started when first needed and again after it died.

    Args:
        module: that calls `answer_requests` when it is run.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer; {CRASHED: how} when it died or hung.

        Raises:
            DeviceError: a process cannot be started.
            InternalError: the worker failed.
        """
        process = self._process = self._process or _start(self._module)
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
                raise InternalError("cannot run a model in a process of its own", got=answer[FAULT])
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


def answer_requests(answer: Answer) -> None:
    """Answer requests until standard input ends; what libraries print goes nowhere."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        serve(answer, sys.stdin, answers)


def serve(answer: Answer, requests: Iterable[str], answers: IO[str]) -> None:
    """Answer every line of `requests`."""
    for line in requests:
        answers.write(json.dumps(_answered(answer, json.loads(line))) + "\n")
        answers.flush()


def _answered(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return answer(request)
    except QuantRtError as error:
        return {ERROR: " ".join(part for part in (error.message, error.got) if part)}
    except Exception as error:  # noqa: BLE001  a fault of ours is told apart from the death of a library
        return {FAULT: f"{type(error).__name__}: {error}"}


def _start(module: str) -> subprocess.Popen[bytes]:
    """This Python with its path."""
    path = os.pathsep.join(folder or "." for folder in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", module],
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
