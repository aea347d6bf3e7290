# SPDX-License-Identifier: Apache-2.0
"""Machine code and plans of cuDNN's that are kept from one build to the next, beside the timing cache.

The file is a program without steps, packed as in an engine file. Machine code holds for the sources and the
Triton that it was made by; plans name the GPU and the cuDNN that they are for. What is of no use here is
left behind when the file is written again. The same content gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from quantrt.errors import DataError, ModelError
from quantrt.ir.atomic import replace_file
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.kernel_text import kernel_key
from quantrt.plan.cudnn_plan import CudnnPlan
from quantrt.plan.packed import pack, unpack
from quantrt.plan.plan import LibraryModel
from quantrt.plan.program import Program
from quantrt.plan.program_json import LIBRARY, program_from_model, program_to_model

__all__ = ["CodeCache", "load_code", "path_beside", "save_code"]

SUFFIX = ".code"
MAX_FILE_BYTES = 2**28
MADE_BY = "made by"
DECIDING = ("triton", "sources")
"""Entries of the timing environment that machine code depends on."""


@dataclass(frozen=True)
class CodeCache:
    """What was compiled in earlier builds.

    Attributes:
        kernels: machine code by what it was compiled from.
        plans: of cuDNN, by key.
    """

    kernels: Mapping[KernelSpec, CompiledKernel] = field(default_factory=dict)
    plans: Mapping[str, CudnnPlan] = field(default_factory=dict)


def path_beside(timing_cache: str) -> Path:
    """Where the code of the builds with a timing cache is."""
    return Path(timing_cache + SUFFIX)


def load_code(path: Path, environment: Mapping[str, str], capabilities: Collection[int]) -> CodeCache:
    """What a file holds; of its kernels those that were made by the same sources and Triton.

    Args:
        environment: of the timings; see `timing_environment`.
        capabilities: kernels without machine code for all of these are left out, and theirs for others.

    Raises:
        DataError: the file is damaged, or none of these; names it.
    """
    if not path.exists():
        return CodeCache()
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error
    if len(raw) > MAX_FILE_BYTES:
        raise _damaged(path, f"more than {MAX_FILE_BYTES} bytes")
    try:
        program = program_from_model(unpack(LibraryModel(LIBRARY, raw, {})))
    except (ValueError, ModelError) as error:
        raise _damaged(path, str(error)) from error
    is_current = program.notes.get(MADE_BY) == _made_by(environment)
    kernels = [kernel for kernel in program.kernels.values() if kernel.cubins.keys() >= set(capabilities)]
    trimmed = [_trimmed(kernel, capabilities) for kernel in kernels] if is_current else []
    return CodeCache({kernel.spec: kernel for kernel in trimmed}, program.plans)


def save_code(code: CodeCache, path: Path, environment: Mapping[str, str]) -> None:
    """Write kernels and plans, wholly or not at all.

    Raises:
        DeviceError: the file cannot be written.
    """
    program = Program(
        inputs=(),
        outputs=(),
        steps=(),
        weights={},
        kernels={kernel_key(spec): kernel for spec, kernel in code.kernels.items()},
        notes={MADE_BY: _made_by(environment)},
        plans=code.plans,
    )
    with replace_file(path) as file:
        file.write(pack(program_to_model(program)).graph)


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
