# SPDX-License-Identifier: Apache-2.0
"""Machine code and plans of cuDNN's that are kept from one build to the next, beside the timing cache.

The file is a program without steps, packed as in an engine file. Machine code holds for the sources and the
Triton that it was made by; plans name the GPU and the cuDNN that they are for. GPUs and machines that share
the file have theirs side by side:

    kernel    KEY@80,90     the compute capabilities that it was compiled for
    plan      KEY@GPU@CUDNN

What other sources or another Triton made is left behind when the file is written again. The same content
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from quantrt.errors import DataError, ModelError
from quantrt.ir.atomic import replace_file
from quantrt.ir.kept_file import warn_damaged
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.cudnn_plan import CudnnPlan
from quantrt.plan.packed import pack, unpack
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program import Program
from quantrt.plan.program_json import LIBRARY, program_from_model, program_to_model

__all__ = ["CodeCache", "add_code", "load_code", "path_beside"]

SUFFIX = ".code"
MAX_FILE_BYTES = 2**28
MADE_BY = "made by"
DECIDING = ("triton", "sources")
"""Entries of the timing environment that machine code depends on."""

AT = "@"
NOTHING = Program(inputs=(), outputs=(), steps=(), weights={}, kernels={}, notes={})


@dataclass(frozen=True)
class CodeCache:
    """What was compiled for one GPU, and the targets beside it, in earlier builds.

    Attributes:
        kernels: machine code by what it was compiled from.
        plans: of cuDNN, by key of the graph.
    """

    kernels: Mapping[KernelSpec, CompiledKernel] = field(default_factory=dict)
    plans: Mapping[str, CudnnPlan] = field(default_factory=dict)


def path_beside(timing_cache: str) -> Path:
    """Where the code of the builds with a timing cache is."""
    return Path(timing_cache + SUFFIX)


def load_code(path: Path, environment: Mapping[str, str], capabilities: Collection[int]) -> CodeCache:
    """What a file holds for one GPU; of its kernels those that were made by the same sources and Triton.

    Args:
        environment: of the timings; see `timing_environment`.
        capabilities: kernels without machine code for all of these are left out, and theirs for others.

    Raises:
        DataError: the file is damaged, or none of these; names it.
    """
    found, wanted = _read(path), set(capabilities)
    kernels = _current(found, environment).values()
    usable = [kernel for kernel in kernels if kernel.cubins.keys() >= wanted]
    usable.sort(
        key=lambda kernel: -len(kernel.cubins)
    )  # what was compiled for no others comes last, and stays
    plans = {key.partition(AT)[0]: plan for key, plan in found.plans.items() if _is_for(plan, environment)}
    return CodeCache({kernel.spec: _trimmed(kernel, capabilities) for kernel in usable}, plans)


def add_code(code: CodeCache, path: Path, environment: Mapping[str, str]) -> None:
    """Write kernels and plans beside those of the file that are of use still; a damaged one is made anew.

    Raises:
        DeviceError: the file cannot be written.
    """
    try:
        found = _read(path)
    except DataError as error:
        warn_damaged(path, error.got)
        found = NOTHING
    kernels = {_kernel_key(kernel): kernel for kernel in code.kernels.values()}
    plans = {_plan_key(key, plan): plan for key, plan in code.plans.items()}
    kept = {_plan_key(key, plan): plan for key, plan in found.plans.items()}
    program = replace(
        NOTHING,
        kernels={**_current(found, environment), **kernels},
        notes={MADE_BY: _made_by(environment)},
        plans={**kept, **plans},
    )
    with replace_file(path) as file:
        file.write(pack(program_to_model(program)).graph)


def _read(path: Path) -> Program:
    """The program of a file; NOTHING where there is none.

    Raises:
        DataError: the file is damaged, or none of these; names it.
    """
    if not path.exists():
        return NOTHING
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error
    if len(raw) > MAX_FILE_BYTES:
        raise _damaged(path, f"more than {MAX_FILE_BYTES} bytes")
    try:
        return program_from_model(unpack(LibraryModel(LIBRARY, raw, {})))
    except (ValueError, ModelError) as error:
        raise _damaged(path, str(error)) from error


def _current(program: Program, environment: Mapping[str, str]) -> dict[str, CompiledKernel]:
    """Its kernels, if they are what would be compiled now."""
    is_current = program.notes.get(MADE_BY) == _made_by(environment)
    return {_kernel_key(kernel): kernel for kernel in program.kernels.values()} if is_current else {}


def _kernel_key(kernel: CompiledKernel) -> str:
    return f"{kernel_key(kernel.spec)}{AT}{','.join(map(str, sorted(kernel.cubins)))}"


def _plan_key(key: str, plan: CudnnPlan) -> str:
    """A plan's key in a file; those of files of before are without cuDNN, or a GPU too."""
    return AT.join((key.partition(AT)[0], plan.gpu, str(plan.cudnn)))


def _is_for(plan: CudnnPlan, environment: Mapping[str, str]) -> bool:
    cudnn = environment.get("cudnn", str(plan.cudnn))
    return (plan.gpu, str(plan.cudnn)) == (environment["gpu"], cudnn)


def _made_by(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in DECIDING}


def _trimmed(kernel: CompiledKernel, capabilities: Collection[int]) -> CompiledKernel:
    """The kernel with machine code for these alone."""
    return replace(
        kernel,
        cubins={capability: kernel.cubins[capability] for capability in sorted(capabilities)},
        shared_bytes={capability: kernel.shared_bytes[capability] for capability in sorted(capabilities)},
    )


def _damaged(path: Path, got: str) -> DataError:
    return DataError(
        f"cannot read the machine code in '{path}'",
        got=got[:200],
        hint=f"`rm '{path}'`: it is made anew",
    )
