# SPDX-License-Identifier: Apache-2.0
"""Many kernels compiled at once, each in one of several processes that never touch a GPU."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key, spec_to_json
from quantrt.kernels.triton_cache import triton_cache
from quantrt.threads import usable_cores
from quantrt.worker_process import CRASHED, ERROR, WorkerPool

__all__ = ["OUT_OF_TIME", "CompileFailure", "compile_all", "compilers"]

WORKER = "quantrt.kernels.compile_worker"

KERNEL_LIMIT_S = 120.0
"""After this long a kernel counts as one that the compiler cannot do; ordinary ones take 0.1 to 5 s."""

OUT_OF_TIME = "not compiled: the time for compiling was over"


@dataclass(frozen=True)
class CompileFailure:
    """A kernel that could not be compiled, and why, in one line."""

    spec: KernelSpec
    reason: str


def compilers(count: int | None = None) -> WorkerPool:
    """Processes that compile: no GPU, Triton as a compiler. They start when there is something for them.

    Args:
        count: None is one per core.

    Raises:
        DeviceError: there is no place for files of the compiler.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    with ExitStack() as stack:
        cache = str(triton_cache(environment, stack))
        environment |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_CACHE_DIR": cache}
        return WorkerPool(WORKER, count or usable_cores(), environment, on_close=stack.pop_all().close)


def compile_all(
    specs: Sequence[KernelSpec],
    capabilities: Sequence[int],
    *,
    pool: WorkerPool | None = None,
    workers: int | None = None,
    deadline_s: float | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[KernelSpec, CompiledKernel | CompileFailure]:
    """Machine code of every spec for every capability, in the order of `specs`; equal specs once.

    A kernel that fails for one capability fails. A worker that dies costs the kernel it was at.

    Args:
        pool: of `compilers`; by default one of this call's own, of as many workers as are asked for.
        deadline_s: seconds from now, after which what is not compiled is a failure.
        on_progress: called with (kernels done, kernels in all), one per capability.

    Raises:
        DeviceError: no process can be started.
    """
    if pool is None:
        with closing(compilers(workers)) as own:
            return compile_all(specs, capabilities, pool=own, deadline_s=deadline_s, on_progress=on_progress)
    distinct = {kernel_key(spec): spec for spec in specs}
    jobs = [(key, capability) for key in distinct for capability in capabilities]
    requests = [{"spec": spec_to_json(distinct[key]), "capability": capability} for key, capability in jobs]
    found = pool.ask_all(requests, limit_s=KERNEL_LIMIT_S, deadline_s=deadline_s, on_progress=on_progress)
    answers = dict(zip(jobs, found, strict=True))
    return {
        spec: _result(
            spec, {capability: answers[kernel_key(spec), capability] for capability in capabilities}
        )
        for spec in specs
    }


def _result(
    spec: KernelSpec, answers: Mapping[int, dict[str, Any] | None]
) -> CompiledKernel | CompileFailure:
    """What came of a kernel, from the answers by capability; None is one that there was no time for."""
    parts = {}
    for capability, answer in answers.items():
        if answer is None or ERROR in answer or CRASHED in answer:
            return CompileFailure(spec, f"sm_{capability}: {_reason(answer)}")
        parts[capability] = answer
    first = next(iter(parts.values()))
    return CompiledKernel(
        spec=spec,
        symbol=first["symbol"],
        cubins={capability: base64.b64decode(part["cubin"]) for capability, part in parts.items()},
        shared_bytes={capability: part["shared_bytes"] for capability, part in parts.items()},
        extra_pointers=first["extra_pointers"],
        registers=first["registers"],
        spills=first["spills"],
        overlaps=any(part["overlaps"] for part in parts.values()),
        facts=first["facts"],
    )


def _reason(answer: Mapping[str, Any] | None) -> str:
    if answer is None:
        return OUT_OF_TIME
    return f"the compiler {answer[CRASHED]}" if CRASHED in answer else str(answer[ERROR])
