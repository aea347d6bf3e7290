# SPDX-License-Identifier: Apache-2.0
"""Kernels on FP8 codes compile for every generation of GPUs that has them, on its tensor cores."""

from pathlib import Path

import numpy as np
import pytest

from quantrt.dtypes import FP8
from quantrt.gpu import gpu_named
from quantrt.kernels.gemm.spec import GemmProblem, TileConfig, kernel_of, why_not
from quantrt.kernels.kernel import CompiledKernel, KernelSpec
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.tactic import Tactic
from tests.kernels.element_types.test_fp8_interpreter import biased, gate, product, rows_of
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar
from tests.kernels.products.gemm_problems import SUM
from tests.kernels.products.test_gemm_compiled import LAYER, instructions

CAPABILITIES = (89, 90, 100, 120)
GPUS = {89: "L4", 90: "H200", 100: "B200", 120: "RTX 5090"}


def problem(*shape: int) -> GemmProblem:
    """Codes in, + bias, floats and codes out."""
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(0.05))
    y = b("add", b("mul", 0, 1), 2)
    M, N, K = shape
    return GemmProblem(M, N, K, FP8.name, 16, b.build(y, b("quantize_fp8", y, 3)), (), ("float16", FP8.name))


def specs(rng: np.random.Generator) -> dict[str, KernelSpec]:
    """One of each function that reads or writes FP8."""
    tile = TileConfig(128, 64, 128, 4, 3)
    found = {
        "gemm": kernel_of(problem(*LAYER), tile),
        "gemm, odd": kernel_of(problem(6304, 100, 200), tile),
        "promoted": kernel_of(problem(*LAYER), TileConfig(128, 64, 128, 4, 3, promotes=True)),
    }
    h200 = gpu_named("H200")
    gated, _, _ = product(rng, (64, 64, 128), gate(), (FP8.name,), is_gated=True)
    parts, _, _ = product(rng, (4, 32, 4096), biased(is_requantized=True), (FP8.name,))
    b = Builder(TENSOR, scalar(0.05))
    read = rows_of(b.build(b("quantize_fp8", b("exp", 0), 1)), [product(rng, (8, 16, 64), biased(
        is_requantized=False), ("float16",))[1][0]], FP8.name)  # fmt: skip
    for name, workload in (("gate", gated), ("parts", parts), ("rows", read)):
        tactics = [row for row in list_tactics(workload, h200) if isinstance(row, Tactic)]
        wanted = [row for row in tactics if name != "parts" or "split" in row.name]
        for spec in wanted[0].drafts[0].kernels:
            found[f"{name}: {spec.function}"] = spec
    return found


@pytest.fixture(scope="module")
def compiled(compile_kernels) -> dict[str, CompiledKernel]:
    wanted = specs(np.random.default_rng(0))
    results = compile_kernels(list(wanted.values()), CAPABILITIES)
    failures = {name: results[spec] for name, spec in wanted.items()}
    assert all(isinstance(kernel, CompiledKernel) for kernel in failures.values()), failures
    return failures


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_family_compiles(compiled: dict[str, CompiledKernel], capability: int):
    assert {name.partition(":")[0] for name in compiled} == {
        "gemm", "gemm, odd", "promoted", "gate", "parts", "rows",
    }  # fmt: skip
    assert all(capability in kernel.cubins for kernel in compiled.values())


@pytest.mark.parametrize(
    ("capability", "product_of"),
    [(89, "QMMA.16832.F32.E4M3.E4M3"), (90, "QGMMA.64x64x32.F32.E4M3.E4M3"), (120, "QMMA")],
)
def test_products_are_those_of_the_tensor_cores(
    compiled: dict[str, CompiledKernel], capability: int, product_of: str, tmp_path: Path
):
    used = instructions(compiled["gemm"].cubins[capability], tmp_path)
    assert any(name.startswith(product_of) for name in used), used
    assert not any(name.startswith(("STL", "LDL")) for name in used)


def test_before_ada_no_product_is_legal():
    assert why_not(problem(*LAYER), gpu_named("T4"))
    for gpu in ("A100", "A10"):
        assert "89 is the least" in (why_not(problem(*LAYER), gpu_named(gpu)) or "")
    assert why_not(problem(*LAYER), gpu_named("L4")) is None
