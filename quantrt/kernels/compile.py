# SPDX-License-Identifier: Apache-2.0
"""KernelSpec -> machine code, with Triton; no GPU is needed and none is touched."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from quantrt.errors import DeviceError, InternalError
from quantrt.kernels.cubin import resources_of
from quantrt.kernels.descriptor import parameters_of
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.kernels.nested import are_filled, nested, paths_of
from quantrt.kernels.overlap import has_wait, may_overlap, with_wait

__all__ = ["compile_kernel", "find_function"]

FOLDER = Path(__file__).parent
FAMILIES = "quantrt.kernels."
WARP_SIZE = 32
ALIGNMENT = 16
"""Of pointers in bytes and of integers, in `KernelSpec.aligned`."""

GLUON_CAPABILITY = 90
"""What kernels in Gluon are written for: their layouts are of its instructions."""

GROUP_WARPS = 4
REGISTERS = 65536
REGISTER_UNIT = 8
"""Warps that multiply together on compute capability 9.0; registers of a multiprocessor, and in what portions
each thread gets them."""


def compile_kernel(spec: KernelSpec, capability: int) -> CompiledKernel:
    """Machine code of `spec` for one compute capability, such as 90.

    Scratch memory: the compiler passes pointers to it behind the kernel's own arguments whether or not it is
    used. How many is read from the entry's parameters, for the number changed from one Triton to the next.

    Raises:
        InternalError: there is no such kernel, its arguments are not the spec's, or it wants scratch memory.
        DeviceError: Triton runs as an interpreter (TRITON_INTERPRET), so that nothing can be compiled; or the
            kernel is for another compute capability.
        Exception: whatever the compiler raises; its classes differ from version to version.
    """
    # Triton is optional: imported only where something is compiled.
    import triton
    from triton.backends.compiler import GPUTarget

    function = find_function(spec)
    if function.is_gluon() and capability != GLUON_CAPABILITY:
        raise DeviceError(
            f"kernel '{spec.function}' is for compute capability {GLUON_CAPABILITY} alone",
            got=str(capability),
        )
    overlaps = may_overlap(spec.family, capability)
    with triton.knobs.compilation.scope(), triton.knobs.runtime.scope():
        triton.knobs.compilation.disable_line_info = True  # more than half of the bytes otherwise
        triton.knobs.runtime.add_stages_inspection_hook = _overlapping if overlaps else None
        compiled = triton.compile(
            _source(spec, function),
            target=GPUTarget("cuda", capability, WARP_SIZE),
            options={
                **_resources_asked(spec, function),
                "enable_fp_fusion": not spec.is_exact,
                "launch_pdl": overlaps,  # so that Triton's cache tells them apart
            },
        )
    metadata = compiled.metadata
    if metadata.num_warps != spec.num_warps:
        raise InternalError(
            f"kernel '{spec.function}' has other warps than its spec",
            got=str(metadata.num_warps),
            expected=str(spec.num_warps),
        )
    for kind in ("global_scratch_size", "profile_scratch_size"):
        if getattr(metadata, kind, 0):
            raise InternalError(f"kernel '{spec.function}' needs scratch memory", got=f"{kind} > 0")
    resources = resources_of(compiled.asm["cubin"])
    return CompiledKernel(
        spec=spec,
        symbol=metadata.name,
        cubins={capability: compiled.asm["cubin"]},
        shared_bytes={capability: metadata.shared},
        extra_pointers=_extra_pointers(compiled.asm["ptx"], spec),
        registers=0 if resources is None else resources.registers,
        spills=0 if resources is None else resources.stack_bytes // 4,
        overlaps=has_wait(compiled.asm["ptx"]),
        facts={"triton": triton.__version__},
    )


def find_function(spec: KernelSpec) -> Any:
    """The spec's @triton.jit function, in quantrt/kernels/<family>/triton_kernel.py.

    Raises:
        InternalError: there is no such kernel.
        DeviceError: it is interpreted.
    """
    is_named = spec.family.isidentifier() and spec.function.isidentifier()
    if not is_named or not (FOLDER / spec.family / "triton_kernel.py").is_file():
        raise InternalError(f"there is no kernel family '{spec.family}' with '{spec.function}'")
    module = importlib.import_module(f"quantrt.kernels.{spec.family}.triton_kernel")
    _make_keys(module, set())
    function = getattr(module, spec.function, None)
    if function is None:
        raise InternalError(f"kernel family '{spec.family}' has no function '{spec.function}'")
    if not hasattr(function, "cache_key"):
        raise DeviceError(
            f"cannot compile kernel '{spec.function}': Triton is an interpreter in this process",
            hint="a process without TRITON_INTERPRET in its environment",
        )
    return function


def _make_keys(module: ModuleType, known: set[str]) -> None:
    """Make Triton's keys of a module's functions in its cache, behind those of what the module imports.

    A key has the constants of the functions that are called only where these had keys before: made in
    another order, it would not be that of what was compiled in another process.
    """
    known.add(module.__name__)
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if name not in known and str(name).startswith(FAMILIES):
            _make_keys(sys.modules[str(name)], known)
        getattr(value, "cache_key", None)


def _source(spec: KernelSpec, function: Any) -> Any:
    """What Triton compiles."""
    # Triton is optional: imported only where something is compiled.
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    source = GluonASTSource if function.is_gluon() else ASTSource
    signature, paths = _signature(spec, function)
    constants = {paths[name]: value for name, value in spec.constants}
    aligned = {path: [["tt.divisibility", ALIGNMENT]] for name, path in paths.items() if name in spec.aligned}
    return source(function, signature, constants, aligned)


def _resources_asked(spec: KernelSpec, function: Any) -> dict[str, int]:
    """Warps, stages and registers, as Triton's options.

    A kernel in Gluon asks for its first group of warps alone, and starts the others itself; registers are
    dealt out evenly at first, to all programs that share a multiprocessor. Its constants FIRST_WARPS and
    NEIGHBOURS say where these are not 4 warps and one program.
    """
    if not function.is_gluon():
        return {"num_warps": spec.num_warps, "num_stages": spec.num_stages}
    fixed = dict(spec.constants)
    registers = REGISTERS // (WARP_SIZE * spec.num_warps * int(fixed.get("NEIGHBOURS", 1)))
    warps = int(fixed.get("FIRST_WARPS", GROUP_WARPS))
    return {"num_warps": warps, "maxnreg": registers // REGISTER_UNIT * REGISTER_UNIT}


def _overlapping(backend: Any, stages: dict[str, Any], options: Any, language: Any, capability: int) -> None:
    """Triton's hook over what it compiles in stages: the text before machine code waits at its beginning."""
    make = stages["ptx"]
    stages["ptx"] = lambda source, metadata: with_wait(make(source, metadata))


def _signature(spec: KernelSpec, function: Any) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Triton's signature, arguments in the function's order, constants as "constexpr"; and where each is."""
    types = {**dict(spec.signature), **{name: "constexpr" for name, _ in spec.constants}}
    names = [name for name, _ in (*spec.signature, *spec.constants)]
    paths = paths_of(names, function.arg_names)
    if len(paths) != len(names) or not are_filled(paths, function.arg_names):
        raise InternalError(
            f"the arguments of kernel '{spec.function}' are not those of its spec",
            got=", ".join(names),
            expected=", ".join(function.arg_names),
        )
    launched = [name for name in sorted(paths, key=lambda name: paths[name]) if types[name] != "constexpr"]
    if launched != [name for name, _ in spec.signature]:
        raise InternalError(
            f"kernel '{spec.function}' takes its arguments in another order than its spec",
            got=", ".join(name for name, _ in spec.signature),
            expected=", ".join(launched),
        )
    unknown = spec.aligned - {name for name, _ in spec.signature}
    if unknown:
        raise InternalError(f"kernel '{spec.function}' has no arguments {sorted(unknown)} to be aligned")
    return nested(types, function.arg_names), paths


def _extra_pointers(ptx: str, spec: KernelSpec) -> int:
    """Parameters of the entry behind the arguments of the signature."""
    entry = re.search(r"\.entry\s+\w+\s*\(([^)]*)\)", ptx)
    if entry is None:
        raise InternalError(f"the machine code of kernel '{spec.function}' has no entry")
    own = sum(parameters_of(kind) for _, kind in spec.signature)
    extra = len(re.findall(r"\.param\b", entry.group(1))) - own
    if extra < 0:
        raise InternalError(f"kernel '{spec.function}' lost arguments when it was compiled", got=str(extra))
    return extra
