# SPDX-License-Identifier: Apache-2.0
"""Kernels that have to run on several generations of GPUs.

One plan serves all targets: tactics are those that fit the target with the least shared memory, and a kernel
that the compiler cannot make for every target is not taken. What is fastest on a large GPU may be lost to a
small one that way: an engine for one target alone has the choice of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from quantrt.gpu import GpuFacts, gpu_of_target, shared_memory_of
from quantrt.kernels.compile_all import CompileFailure, compile_all
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.worker_process import WorkerPool

__all__ = ["capability_of", "compile_for_targets", "with_least_shared_memory"]


def capability_of(target: str) -> int:
    """For example 90 of "sm_90".

    Raises:
        UsageError: there is no such target.
    """
    return gpu_of_target(target).capability


def with_least_shared_memory(gpu: GpuFacts, capabilities: Sequence[int]) -> GpuFacts:
    """The GPU with no more shared memory than a block may have on any of the capabilities."""
    limits = [shared_memory_of(capability) for capability in capabilities]
    least = min([gpu.shared_memory_bytes, *(limit for limit in limits if limit is not None)])
    return replace(gpu, shared_memory_bytes=least)


def compile_for_targets(
    kernels: Mapping[KernelSpec, CompiledKernel],
    capabilities: Sequence[int],
    *,
    pool: WorkerPool | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[KernelSpec, CompiledKernel | CompileFailure]:
    """The kernels with machine code for these capabilities beside what they have; failures with the target.

    Raises:
        DeviceError: no process can be started.
    """
    lacking = [spec for spec, kernel in kernels.items() if set(capabilities) - set(kernel.cubins)]
    missing = [name for name in capabilities if any(name not in kernels[spec].cubins for spec in lacking)]
    if not lacking:
        return dict(kernels)
    found = compile_all(lacking, missing, pool=pool, on_progress=on_progress)
    joined = {spec: _joined(kernels[spec], result) for spec, result in found.items()}
    return {**kernels, **joined}


def _joined(
    kernel: CompiledKernel, other: CompiledKernel | CompileFailure
) -> CompiledKernel | CompileFailure:
    if isinstance(other, CompileFailure):
        return other
    for capability, needed in other.shared_bytes.items():
        limit = shared_memory_of(capability)
        if limit is not None and needed > limit:
            reason = f"sm_{capability}: needs {needed} bytes of shared memory, a block has {limit} there"
            return CompileFailure(kernel.spec, reason)
    if (other.symbol, other.extra_pointers) != (kernel.symbol, kernel.extra_pointers):
        names = ", ".join(f"sm_{capability}" for capability in other.cubins)
        return CompileFailure(kernel.spec, f"{names}: its arguments are others than on the GPU it is for")
    return replace(
        kernel,
        cubins={**kernel.cubins, **other.cubins},
        shared_bytes={**kernel.shared_bytes, **other.shared_bytes},
        overlaps=kernel.overlaps or other.overlaps,
    )
