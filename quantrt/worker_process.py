# SPDX-License-Identifier: Apache-2.0
"""Both ends of processes that do what may crash a library, and of which another survives the death.

One JSON request per line in, one JSON answer per line out. A process is started when it is first needed, and
another in its place after it died.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from quantrt.errors import DeviceError, InternalError, QuantRtError

__all__ = ["CRASHED", "ERROR", "FAULT", "LIMIT_S", "WorkerPool", "WorkerProcess", "answer_requests", "serve"]

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
    """One worker.

    Args:
        module: that calls `answer_requests` when it is run.
        environment: variables of the process; by default those of this one.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer; {CRASHED: how} when it died or hung.

        Raises:
            DeviceError: a process cannot be started.
            InternalError: the worker failed.
        """
        self.send(request)
        return self.receive() if _ready([self], LIMIT_S) else self.give_up(LIMIT_S)

    def send(self, request: Mapping[str, Any]) -> None:
        """Give the worker a request, of which `receive` takes the answer.

        Raises:
            DeviceError: a process cannot be started.
        """
        process = self._process = self._process or _start(self._module, self._environment)
        pipe = cast("IO[bytes]", process.stdin)
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # it died; its answer says so

    def receive(self) -> dict[str, Any]:
        """The answer to what was sent, waited for; {CRASHED: how} when the worker died.

        Raises:
            InternalError: the worker failed.
        """
        line = self.pipe.readline()
        if not line.endswith(b"\n"):
            status = cast("subprocess.Popen[bytes]", self._process).wait()
            self.close()
            return {CRASHED: _death(status)}
        answer: dict[str, Any] = json.loads(line)
        if FAULT in answer:
            raise InternalError(f"the process {self._module} failed", got=answer[FAULT])
        return answer

    def give_up(self, limit_s: float) -> dict[str, Any]:
        """End the worker, and answer for it that it hung for `limit_s`."""
        self.close()
        return {CRASHED: f"took more than {limit_s:g} s"}

    @property
    def pipe(self) -> IO[bytes]:
        """Where a started worker's answers come from."""
        return cast("IO[bytes]", cast("subprocess.Popen[bytes]", self._process).stdout)

    def close(self) -> None:
        """End the worker."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class WorkerPool:
    """Workers that answer many requests side by side.

    Args:
        module, environment: as of `WorkerProcess`.
        count: of processes, at most.
        on_close: called when they have ended.
    """

    def __init__(
        self,
        module: str,
        count: int,
        environment: Mapping[str, str] | None = None,
        *,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers = [WorkerProcess(module, environment) for _ in range(count)]
        self._on_close = on_close

    def ask_all(
        self,
        requests: Sequence[Mapping[str, Any]],
        *,
        limit_s: float = LIMIT_S,
        deadline_s: float | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[dict[str, Any] | None]:
        """The answer to every request, in their order; {CRASHED: how} of one whose process died or hung.

        Args:
            limit_s: of one request.
            deadline_s: seconds from now, after which what has no answer gets None.
            on_progress: called with (requests answered, requests in all).

        Raises:
            DeviceError: a process cannot be started.
            InternalError: a worker failed.
        """
        answers: list[dict[str, Any] | None] = [None] * len(requests)
        end_s = None if deadline_s is None else time.monotonic() + deadline_s
        waiting, idle = deque(enumerate(requests)), self._workers[: len(requests)]
        busy: dict[WorkerProcess, tuple[int, float]] = {}  # the number of its request, and when it hangs
        try:
            while (waiting or busy) and (end_s is None or time.monotonic() < end_s):
                while waiting and idle:
                    number, request = waiting.popleft()
                    busy[idle[-1]] = number, time.monotonic() + limit_s
                    idle.pop().send(request)
                for worker, answer in _answered(busy, limit_s, end_s):
                    answers[busy.pop(worker)[0]] = answer
                    idle.append(worker)
                    on_progress(len(requests) - len(waiting) - len(busy), len(requests))
        finally:
            for worker in busy:
                worker.close()
        return answers

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()
        self._on_close()


def _answered(
    busy: Mapping[WorkerProcess, tuple[int, float]], limit_s: float, end_s: float | None
) -> list[tuple[WorkerProcess, dict[str, Any]]]:
    """What busy workers have answered once one of them has, or hangs, or time is over."""
    moments = [hangs_s for _, hangs_s in busy.values()]
    next_s = min(moments if end_s is None else [*moments, end_s])
    ready = _ready(busy, max(0.0, next_s - time.monotonic()))
    now_s = time.monotonic()
    late = [worker for worker, (_, hangs_s) in busy.items() if worker not in ready and now_s >= hangs_s]
    return [(one, one.receive()) for one in ready] + [(one, one.give_up(limit_s)) for one in late]


def _ready(workers: Iterable[WorkerProcess], timeout_s: float) -> list[WorkerProcess]:
    """The workers that have answered or died."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.pipe, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select(timeout_s)]


def answer_requests(answer: Answer) -> None:
    """Answer requests until standard input ends; what libraries print goes nowhere."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        serve(answer, sys.stdin, answers)


def serve(answer: Answer, requests: Iterable[str], answers: IO[str]) -> None:
    """Answer every line of `requests`."""
    for line in requests:
        answers.write(json.dumps(_reply(answer, json.loads(line))) + "\n")
        answers.flush()


def _reply(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return answer(request)
    except QuantRtError as error:
        return {ERROR: ": ".join(part for part in (error.message, error.got) if part)}
    except Exception as error:  # noqa: BLE001  a fault of ours is told apart from the death of a library
        return {FAULT: f"{type(error).__name__}: {error}"}


def _start(module: str, environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    """This Python with its path."""
    path = os.pathsep.join(folder or "." for folder in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**(os.environ if environment is None else environment), "PYTHONPATH": path},
        )
    except OSError as error:
        raise DeviceError(f"cannot start a process for {module}", got=str(error)) from error


def _death(status: int) -> str:
    """How a process ended, such as "killed by SIGSEGV"."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
