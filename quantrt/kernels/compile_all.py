# SPDX-License-Identifier: Apache-2.0
"""Many kernels compiled at once, each in one of several processes that never touch a GPU."""

from __future__ import annotations

import base64
import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, cast

from quantrt.device import describe_device
from quantrt.errors import DeviceError
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key, spec_to_json

__all__ = ["CompileFailure", "compile_all"]

KERNEL_LIMIT_S = 120.0
"""After this long a kernel counts as one that the compiler cannot do; ordinary ones take 0.1 to 5 s."""

OUT_OF_TIME = "not compiled: the time for compiling was over"


@dataclass(frozen=True)
class CompileFailure:
    """A kernel that could not be compiled, and why, in one line."""

    spec: KernelSpec
    reason: str


@dataclass(frozen=True)
class _Job:
    spec: KernelSpec
    capability: int


@dataclass
class _Worker:
    """One process and what it is busy with."""

    process: subprocess.Popen[bytes]
    job: _Job | None = None
    limit_at_s: float = 0.0


@dataclass
class _Work:
    """All jobs of one call.

    Attributes:
        answers: what came of each job: a worker's answer, {"error": reason} where there was none.
    """

    waiting: deque[_Job]
    on_progress: Callable[[int, int], None]
    total: int
    answers: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def finish(self, job: _Job, answer: dict[str, Any]) -> None:
        """Take the answer to a job."""
        self.answers[kernel_key(job.spec), job.capability] = answer
        self.on_progress(len(self.answers), self.total)


def compile_all(
    specs: Sequence[KernelSpec],
    capabilities: Sequence[int],
    *,
    workers: int | None = None,
    deadline_s: float | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[KernelSpec, CompiledKernel | CompileFailure]:
    """Machine code of every spec for every capability, in the order of `specs`; equal specs once.

    A kernel that fails for one capability fails. A worker that dies costs the kernel it was at.

    Args:
        workers: processes; None is one per core.
        deadline_s: seconds from now, after which what is not compiled is a failure.
        on_progress: called with (kernels done, kernels in all), one per capability.

    Raises:
        DeviceError: no process can be started.
    """
    distinct = {kernel_key(spec): spec for spec in specs}
    jobs = deque(_Job(spec, capability) for spec in distinct.values() for capability in capabilities)
    work = _Work(jobs, on_progress, len(jobs))
    count = min(workers or describe_device(with_gpu=False)["available_cores"] or 1, len(jobs))
    pool: list[_Worker] = []
    end_at_s = time.monotonic() + deadline_s if deadline_s is not None else None
    try:
        pool += [_Worker(_start_process()) for _ in range(count)]
        _run(work, pool, end_at_s)
    finally:
        for worker in pool:
            _end_process(worker.process)
    return {spec: _result(spec, capabilities, work.answers) for spec in specs}


def _run(work: _Work, pool: list[_Worker], end_at_s: float | None) -> None:
    while len(work.answers) < work.total:
        now_s = time.monotonic()
        if end_at_s is not None and now_s >= end_at_s:
            break
        for worker in pool:
            if worker.job is None and work.waiting:
                _give(worker, work.waiting.popleft(), now_s)
        busy = [worker for worker in pool if worker.job is not None]
        next_s = min([worker.limit_at_s for worker in busy] + ([end_at_s] if end_at_s is not None else []))
        ready = _ready(busy, max(0.0, next_s - now_s))
        for worker in busy:
            if worker.process.pid in ready:
                _collect(worker, work)
            elif time.monotonic() >= worker.limit_at_s:
                _give_up(worker, work)
    for job in [*(worker.job for worker in pool if worker.job), *work.waiting]:
        work.finish(job, {"error": OUT_OF_TIME})


def _ready(busy: list[_Worker], timeout_s: float) -> set[int]:
    """Process ids of the workers that have answered or died."""
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(_pipe(worker.process.stdout), selectors.EVENT_READ, worker.process.pid)
        return {key.data for key, _ in selector.select(timeout_s)}


def _give(worker: _Worker, job: _Job, now_s: float) -> None:
    request = {"spec": spec_to_json(job.spec), "capability": job.capability}
    worker.job, worker.limit_at_s = job, now_s + KERNEL_LIMIT_S
    try:
        pipe = _pipe(worker.process.stdin)
        pipe.write(json.dumps(request).encode() + b"\n")
        pipe.flush()
    except BrokenPipeError:
        return  # it died; reading its answer says so


def _collect(worker: _Worker, work: _Work) -> None:
    """Take the answer of a worker that has one; replace one that died."""
    line = _pipe(worker.process.stdout).readline()
    job, worker.job = worker.job, None
    if job is None:
        return
    if line.endswith(b"\n"):
        work.finish(job, json.loads(line))
        return
    _end_process(worker.process)
    work.finish(job, {"error": f"the compiler's process died with status {worker.process.returncode}"})
    worker.process = _start_process()


def _give_up(worker: _Worker, work: _Work) -> None:
    """End a worker that is at one kernel for too long."""
    job, worker.job = worker.job, None
    _end_process(worker.process)
    if job is not None:
        work.finish(job, {"error": f"the compiler took more than {KERNEL_LIMIT_S:g} s"})
    worker.process = _start_process()


def _start_process() -> subprocess.Popen[bytes]:
    """A worker: this Python and its path, no GPU, Triton as a compiler."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = os.pathsep.join(folder or "." for folder in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "quantrt.kernels.compile_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        )
    except OSError as error:
        raise DeviceError("cannot start a process to compile kernels", got=str(error)) from error


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    """A pipe that was asked for when its process was started."""
    return cast("IO[bytes]", pipe)


def _result(
    spec: KernelSpec, capabilities: Sequence[int], answers: Mapping[tuple[str, int], dict[str, Any]]
) -> CompiledKernel | CompileFailure:
    key = kernel_key(spec)
    parts = {capability: answers[key, capability] for capability in capabilities}
    for capability, part in parts.items():
        if "error" in part:
            return CompileFailure(spec, f"sm_{capability}: {part['error']}")
    first = next(iter(parts.values()))
    return CompiledKernel(
        spec=spec,
        symbol=first["symbol"],
        cubins={capability: base64.b64decode(part["cubin"]) for capability, part in parts.items()},
        shared_bytes={capability: part["shared_bytes"] for capability, part in parts.items()},
        extra_pointers=first["extra_pointers"],
        registers=first["registers"],
        spills=first["spills"],
        facts=first["facts"],
    )
