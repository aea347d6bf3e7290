# SPDX-License-Identifier: Apache-2.0
"""Tuning with real kernels: compiled without a GPU, and run in Triton's interpreter on the CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.compile_all import CompileFailure, compile_all
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.tactic import REFERENCE, Tactic, Workload
from quantrt.tactics.cuda.timing.open_tactic import OpenTactic
from quantrt.tactics.cuda.timing.sample_inputs import random_inputs
from quantrt.tactics.cuda.timing.timing_cache import TimingCache
from quantrt.tactics.cuda.tuning.tune import TuneOptions, tune
from tests.unit.tactics.cuda.workload_samples import int8_gemm, scaled_rows

H200 = gpu_named("H200")
CPU = torch.device("cpu")
HERE = {"gpu": "none"}


def kernels_of(workload: Workload) -> list[KernelSpec]:
    tactics = [found for found in list_tactics(workload, H200) if isinstance(found, Tactic)]
    return [spec for tactic in tactics for draft in tactic.drafts for spec in draft.kernels]


def test_kernels_are_compiled_side_by_side_to_the_same_bytes(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = list(dict.fromkeys(kernels_of(scaled_rows())))[:4]
    assert len(specs) == 4
    found = []
    for folder in ("first", "second"):  # each with an empty cache of Triton's
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / folder))
        found.append(compile_all(specs, [90], workers=2))
    assert found[0] == found[1]
    for spec, kernel in found[0].items():
        assert isinstance(kernel, CompiledKernel), kernel
        assert kernel.cubins[90].startswith(b"\x7fELF")
        assert kernel.symbol == spec.function
        assert kernel.extra_pointers >= 0
        assert kernel.registers > 0


def test_what_the_compiler_refuses_is_data() -> None:
    good = kernels_of(scaled_rows())[0]
    constants = tuple((name, 3 if name == "BLOCK_C" else value) for name, value in good.constants)
    cases = {
        "power of 2": replace(good, constants=constants),
        "arguments": replace(good, signature=good.signature[:-1]),
        "another order": replace(good, signature=good.signature[::-1]),
        "to be aligned": replace(good, aligned=frozenset({"nothing"})),
    }
    found = compile_all([*cases.values(), good], [90], workers=1)
    for text, spec in cases.items():
        assert isinstance(found[spec], CompileFailure), spec
        assert text in found[spec].reason
    assert isinstance(found[good], CompiledKernel)


@pytest.mark.parametrize("workload", [scaled_rows(rows=3), int8_gemm(M=7, K=41, N=9)], ids=["rows", "gemm"])
def test_kernels_are_chosen_before_the_reference(workload: Workload) -> None:
    tactics = {workload.region: list_tactics(workload, H200)}
    options = TuneOptions(level=1)
    first = tune([workload], tactics, gpu=H200, device=CPU, cache=TimingCache(HERE), options=options)
    choice = first.by_region[workload.region]
    assert (choice.tactic.source, choice.origin) == ("triton", "timed")
    assert set(first.kernels) == {spec for draft in choice.tactic.drafts for spec in draft.kernels}
    again = tune([workload], tactics, gpu=H200, device=CPU, cache=first.cache, options=options)
    assert again.by_region[workload.region] == replace(choice, origin="cached")
    assert again.cache == first.cache


def test_weights_that_lose_digits_in_float16_are_no_kernels_fault() -> None:
    """Sums of hundreds, clipped to 6: the rounding of the weights alone is beyond any bound on the output."""
    gemm = int8_gemm(M=300, K=48, N=16)
    operands = (Operand("accumulator"),)
    consts = (Instruction("const", (), 0.0), Instruction("const", (), 6.0))
    epilogue = Expression(
        operands, (*consts, Instruction("max", (0, 1)), Instruction("min", (3, 2))), (4,), (False,)
    )
    workload = replace(
        gemm,
        formula=replace(gemm.formula, epilogue=epilogue),
        inputs=(replace(gemm.inputs[0], dtype="float16"),),
        outputs=("float16",),
        weight=100 * np.random.default_rng(5).standard_normal((48, 16)).astype(np.float32),
        constants={},
    )
    tactics = {workload.region: list_tactics(workload, H200)}
    found = tune([workload], tactics, gpu=H200, device=CPU, options=TuneOptions(level=1))
    choice = found.by_region[workload.region]
    assert choice.tactic.name != REFERENCE
    kernels = [row for row in found.candidates[choice.key] if row.source == "triton"]
    assert kernels[0].timing is not None, kernels[0].reason


def test_a_kernel_for_other_work_is_found_out() -> None:
    workload = scaled_rows(rows=3)
    expression = workload.formula.expression
    doubled = replace(expression, instructions=(Instruction("add", (0, 1)),))
    other = replace(workload, formula=replace(workload.formula, expression=doubled))
    *_, reference = list_tactics(workload, H200)
    tactics = {workload.region: [list_tactics(other, H200)[0], reference]}
    choices = tune([workload], tactics, gpu=H200, device=CPU, cache=TimingCache(HERE))
    assert choices.tactics[workload.region] == reference
    (table,) = choices.candidates.values()
    assert any("differs from the reference" in row.reason for row in table)


def test_the_chosen_kernel_computes_what_the_reference_does() -> None:
    workload = int8_gemm(M=3, K=129, N=41)
    inputs = random_inputs(workload, CPU)
    weight = torch.from_numpy(workload.weight)
    constants = {name: torch.from_numpy(array) for name, array in workload.constants.items()}
    (want,) = compute(workload.formula, inputs, workload.outputs, weight, constants)
    assert len(np.unique(want.numpy())) > 50
    with OpenTactic(list_tactics(workload, H200)[0], "gemm", {}, CPU, weights={}) as opened:
        for _ in range(2):
            (got,) = opened.run(inputs)
            assert torch.equal(got, want)
