# SPDX-License-Identifier: Apache-2.0
"""Products whose sums are cut in parts, in Triton's interpreter: the same as those that are not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.kernels.split_k import tiles
from quantrt.regions.expression import IDENTITY, Expression, Operand
from quantrt.regions.region import Gemm
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.convolutions import conv2d
from quantrt.tactics.cuda.products import gemm
from quantrt.tactics.cuda.tactic import Tactic, Workload
from quantrt.tactics.cuda.timing.check import check
from tests.kernels.convolutions.cases import (
    Case,
    Problem,
    channels_last,
    codes,
    float_problem,
    integer_problem,
    run,
    with_epilogue,
)
from tests.kernels.memory_bound.expressions import Builder, constant, scalar
from tests.kernels.run_tactic import facts_of

H200 = gpu_named("H200")
CASES = [
    Case(C=256, N=41, size=(5, 7)),
    Case(C=192, N=64, size=(9, 6), strides=(2, 2)),
    Case(C=256, N=17, size=(7, 3), kernel=(1, 1), pads=(0, 0, 0, 0)),
    Case(C=256, N=9, size=(37,), kernel=(3,), strides=(1,), pads=(1, 1), dilations=(1,)),
]
SHAPES = [(1, 41, 512), (129, 64, 768), (17, 130, 1024)]
"""M, N, K."""


@pytest.fixture(autouse=True)
def _slow_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems that an interpreter can do are too small for parts to be worth it."""
    monkeypatch.setattr(tiles, "SLOWEST_RATIO", 100.0)


def split(tactics: list) -> list[Tactic]:
    """The tactics that cut sums."""
    return [x for x in tactics if isinstance(x, Tactic) and x.drafts[0].runner.startswith("split_")]


def of_conv(problem: Problem) -> list[Tactic]:
    found = split(conv2d.list_tactics(problem.workload(), H200))
    assert 0 < len(found) <= 3
    assert all(tactic.workspace_bytes > 0 for tactic in found)
    return found


def gemm_workload(
    x: torch.Tensor,
    weight: torch.Tensor,
    epilogue: Expression,
    outputs: tuple[str, ...],
    **constants: torch.Tensor,
) -> Workload:
    formula = Gemm(("n", 0), ("n", 1), "w", True, epilogue)
    arrays = {name: tensor.numpy() for name, tensor in constants.items()}
    return Workload("region", formula, (facts_of(x),), outputs, weight.numpy(), arrays)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_parts_of_windows_add_up(case: Case, rng: np.random.Generator):
    problem = integer_problem(case, rng)
    (want,) = problem.expected()
    for tactic in of_conv(problem)[:2]:
        assert torch.equal(run(tactic, problem.inputs)[0], want), tactic.name


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.id)
def test_parts_of_float_windows_add_up(case: Case, rng: np.random.Generator):
    problem = float_problem(case, rng)
    tactic = of_conv(problem)[0]
    assert check(problem.workload(), tactic, run(tactic, problem.inputs), problem.expected()) is None


def test_the_epilogue_sees_whole_sums(rng: np.random.Generator):
    case = CASES[1]
    b = Builder(
        Operand("accumulator"),
        constant("scale"),
        constant("bias"),
        Operand("tensor"),
        *map(scalar, (0.05, 0.02)),
    )
    summed = b("add", b("add", b("mul", 0, 1), 2), b("mul", 3, 4))
    epilogue = b.build(b("quantize", b("max", summed, b.const(0.0)), 5), summed)
    residual = channels_last(torch.from_numpy(codes(rng, case.shape)))
    problem = with_epilogue(
        integer_problem(case, rng), rng, epilogue, tensors=[residual], outputs=("int8", "float16")
    )
    for tactic in of_conv(problem)[:1]:
        assert all(map(torch.equal, run(tactic, problem.inputs), problem.expected()))
        empty = run(tactic, [tensor[:0] for tensor in problem.inputs])
        assert [y.shape[0] for y in empty] == [0, 0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16], ids=["codes", "floats"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parts_of_rows_add_up(shape: tuple[int, int, int], dtype: torch.dtype, rng: np.random.Generator):
    M, N, K = shape
    x = torch.from_numpy(codes(rng, (M, K)))
    weight = torch.from_numpy(np.maximum(codes(rng, (N, K)), -127))
    if dtype == torch.float16:
        x, weight = x.half() / 64, weight.float() / 64
    b = Builder(Operand("accumulator"), constant("bias"))
    bias = torch.from_numpy(rng.standard_normal(N).astype(np.float32))
    workload = gemm_workload(x, weight, b.build(b("add", 0, 1)), ("float32",), bias=bias)
    want = compute(workload.formula, [x], ("float32",), weight.to(dtype), {"bias": bias})
    tactics = split(gemm.list_tactics(workload, H200))
    assert tactics
    for tactic in tactics[:2]:
        got = run(tactic, [x])
        assert check(workload, tactic, got, want) is None, tactic.name
        assert dtype != torch.int8 or torch.equal(got[0], want[0])
        assert run(tactic, [x[:0]])[0].shape == (0, N)


def test_the_largest_sums_are_exact(rng: np.random.Generator):
    """Beyond 2**24, where float32 could not hold the parts."""
    x = torch.full((3, 4096), -128, dtype=torch.int8)
    x[1, 7] = 1
    weight = torch.full((16, 4096), -127, dtype=torch.int8)
    workload = gemm_workload(x, weight, IDENTITY, ("float32",))
    want = compute(workload.formula, [x], ("float32",), weight, {})
    for tactic in split(gemm.list_tactics(workload, H200)):
        (got,) = run(tactic, [x])
        assert torch.equal(got, want[0])
        assert got.max() == 128 * 127 * 4096


def test_no_sum_is_cut_where_tiles_are_many(rng: np.random.Generator):
    problem = float_problem(Case(C=128, N=64, size=(1, 8)), rng)
    workload = problem.workload()
    x = replace(workload.inputs[0], shape=(256, 128, 56, 56), strides=(128 * 56 * 56, 1, 128 * 56, 128))
    assert not split(conv2d.list_tactics(replace(workload, inputs=(x,)), H200))
