# SPDX-License-Identifier: Apache-2.0
"""Kernels run in Triton's interpreter here; what is compiled is compiled in processes of its own."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel's module is imported

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from timeit import timeit

import pytest
import triton.language as tl
from triton.runtime import interpreter

from quantrt.kernels.compile_all import CompileFailure, compile_all, compilers
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.tactics.cuda.timing import trial
from quantrt.tactics.cuda.timing.timing import Timing, timing_of

CompileKernels = Callable[
    [Sequence[KernelSpec], Sequence[int]], dict[KernelSpec, CompiledKernel | CompileFailure]
]


@pytest.fixture(scope="session", autouse=True)
def one_patch_for_each_launch():
    """The interpreter replaces what `triton.language` has when a kernel starts, and would look for what to
    replace again in every function that the kernel calls, which is two thirds of the time of these tests."""
    replace = interpreter._patch_lang

    def replace_what_is_not(function):
        languages = [value for value in function.__globals__.values() if value is tl or value is tl.core]
        if all(not tl.core.is_builtin(language.load) for language in languages):
            return interpreter._LangPatchScope()
        return replace(function)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", replace_what_is_not)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_run_to_time_a_candidate():
    """Where programs are lowered for the interpreter, what is tried is timed by one run: by the dozens that a
    GPU does, the slowest would take minutes, and which is the fastest here says nothing."""

    def measure(runs: Mapping[str, Callable[[], object]], **_: object) -> dict[str, Timing]:
        return {name: timing_of([1e6 * timeit(run, number=1)]) for name, run in runs.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "measure", measure)
        yield


@pytest.fixture(scope="session")
def compile_kernels() -> Iterator[CompileKernels]:
    """compile_kernels(specs, capabilities) -> by spec, its machine code or why there is none.

    In processes that all tests share: to start one and import the compiler takes longer than most kernels.
    """
    with closing(compilers()) as pool:
        yield partial(compile_all, pool=pool)


@pytest.fixture(scope="session")
def compiled_all(compile_kernels: CompileKernels) -> Callable[..., list[CompiledKernel]]:
    """compiled_all(specs, capabilities) -> the machine code of each, in the order of `specs`."""

    def compile_each(specs: Sequence[KernelSpec], capabilities: Sequence[int]) -> list[CompiledKernel]:
        results = compile_kernels(specs, capabilities)
        assert not [x for x in results.values() if not isinstance(x, CompiledKernel)]
        return [results[spec] for spec in specs]

    return compile_each
