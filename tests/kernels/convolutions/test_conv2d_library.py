# SPDX-License-Identifier: Apache-2.0
"""Convolutions by the library: what it takes of the epilogue, what rows kernels do, on the CPU's torch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.backends import cudnn

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression, Operand
from quantrt.runtime.cuda.runners.convolution import _switches
from quantrt.tactics.cuda.convolutions.conv2d import list_tactics
from quantrt.tactics.cuda.convolutions.cudnn_graph import NAME as GRAPH
from quantrt.tactics.cuda.tactic import DEQUANTIZED, Rejected, Tactic
from tests.kernels.convolutions.cases import (
    Case,
    Problem,
    agrees,
    channels_last,
    codes,
    float_problem,
    integer_problem,
    run,
    with_epilogue,
)
from tests.kernels.memory_bound.expressions import Builder, constant, hard_swish, scalar

H200 = gpu_named("H200")
SUM = Operand("accumulator")

CASES = [
    Case(),
    Case(C=3, N=7, size=(15, 13), kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    Case(C=5, N=41, size=(9, 11), strides=(2, 1), pads=(1, 0, 2, 1), dilations=(1, 2)),
    Case(C=12, N=12, groups=12, kernel=(5, 5), pads=(2, 2, 2, 2)),
    Case(C=12, N=18, groups=3),
    Case(C=5, N=7, size=(41,), kernel=(3,), strides=(2,), pads=(1, 2), dilations=(2,)),
    Case(C=4, N=6, size=(5, 6, 7), kernel=(3, 3, 1), strides=(1, 2, 1), pads=(1,) * 6, dilations=(1,) * 3),
]


def library(problem: Problem) -> list[Tactic]:
    """The library's tactics: its own choice of algorithm, then the timed one."""
    found = [x for x in list_tactics(problem.workload(), H200) if x.source == "cudnn" and x.name != GRAPH]
    assert len(found) == 2
    assert all(isinstance(x, Tactic) for x in found)
    assert [x.drafts[-1].outputs for x in found] == [found[0].drafts[-1].outputs] * 2
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_sums_agree(case: Case, dtype: torch.dtype, rng: np.random.Generator):
    problem = float_problem(case, rng, dtype)
    for tactic in library(problem):
        assert [draft.runner for draft in tactic.drafts] == ["convolution"]
        agrees(problem, tactic)


def biased(b: Builder, kind: str) -> int:
    """What follows `sums + bias[n]`; the residual is operand 2."""
    x = b("add", 0, 1)
    match kind:
        case "bias":
            return x
        case "relu":
            return b("max", b.const(0.0), x)
        case "residual relu":
            return b("max", b("add", 2, x), b.const(0.0))
        case _:
            return hard_swish(b, x)


@pytest.mark.parametrize(
    ("kind", "runners"),
    [
        ("bias", ["convolution"]),
        ("relu", ["convolution"]),
        ("residual relu", ["convolution"]),
        ("hard swish", ["convolution", "rows"]),
    ],
)
@pytest.mark.parametrize("case", [CASES[2], CASES[5]], ids=lambda case: case.id)
def test_what_the_library_fuses(case: Case, kind: str, runners: list[str], rng: np.random.Generator):
    has_residual = "residual" in kind
    b = Builder(SUM, constant("bias"), *([Operand("tensor", "r")] if has_residual else []))
    residual = torch.from_numpy(rng.standard_normal(case.shape).astype(np.float32)).half()
    problem = with_epilogue(
        float_problem(case, rng), rng, b.build(biased(b, kind)), tensors=[residual] if has_residual else []
    )
    tactic = library(problem)[0]
    assert [draft.runner for draft in tactic.drafts] == runners
    assert tactic.drafts[0].options["has_bias"]
    assert tactic.drafts[0].options["has_relu"] == (kind.endswith("relu"))
    assert (tactic.workspace_bytes > 0) == (len(runners) > 1)
    agrees(problem, tactic)


def test_codes_out_of_floats_and_two_outputs(rng: np.random.Generator):
    case = CASES[2]
    b = Builder(SUM, constant("scale"), constant("bias"), Operand("tensor", "r"), scalar(0.1), scalar(0.05))
    y = b("add", b("add", b("mul", 0, 1), 2), b("mul", 3, 4))
    residual = channels_last(torch.from_numpy(codes(rng, case.shape)))
    problem = with_epilogue(
        float_problem(case, rng),
        rng,
        b.build(b("quantize", y, 5), y),
        tensors=[residual],
        outputs=("int8", "float16"),
    )
    agrees(problem, library(problem)[0])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_codes_in_are_dequantized(case: Case, rng: np.random.Generator):
    b = Builder(SUM, constant("scale"), constant("bias"), scalar(0.02))
    relu = b("max", b("add", b("mul", 0, 1), 2), b.const(0.0))
    problem = with_epilogue(
        integer_problem(case, rng), rng, b.build(b("quantize", relu, 3)), outputs=("int8",)
    )
    for tactic in library(problem):
        assert DEQUANTIZED in tactic.name.split()
        assert [draft.runner for draft in tactic.drafts] == ["rows", "convolution", "rows"]
        agrees(problem, tactic)


def test_the_largest_sums_stay_in_float16(rng: np.random.Generator):
    problem = integer_problem(Case(C=33, N=7), rng)
    problem.x = torch.full_like(problem.x, -128)
    problem.weight = np.full_like(problem.weight, -127)
    (got,) = run(library(problem)[0], problem.inputs)
    (want,) = problem.expected()
    assert (got / want - 1).abs().max() <= 2.0**-11


def test_the_dequantized_tactic_comes_last(rng: np.random.Generator):
    names = [x.name for x in list_tactics(integer_problem(Case(), rng).workload(), H200)]
    assert [DEQUANTIZED in name for name in names] == [False] * (len(names) - 2) + [True] * 2


@pytest.mark.parametrize("gpu", ["T4", "V100"])
def test_old_gpus_get_the_dequantized_tactic_alone(gpu: str, rng: np.random.Generator):
    found = list_tactics(integer_problem(Case(C=4, N=320), rng).workload(), gpu_named(gpu))
    legal = [x for x in found if isinstance(x, Tactic)]
    assert [DEQUANTIZED in x.name for x in legal] == [True, True]
    rejected = [x for x in found if isinstance(x, Rejected)]
    assert [x.source for x in rejected] == ["triton", "cudnn"]
    assert all(str(gpu_named(gpu).capability) in x.reason for x in rejected)


def test_nothing_to_compute(rng: np.random.Generator):
    b = Builder(SUM, constant("bias"))
    problem = with_epilogue(float_problem(Case(), rng), rng, b.build(biased(b, "relu")))
    (got,) = run(library(problem)[0], [torch.zeros((0, 8, 7, 9), dtype=torch.float16)])
    assert got.shape == (0, 16, 7, 9)


def test_shapes_that_do_not_fit_are_refused(rng: np.random.Generator):
    problem = float_problem(Case(), rng)
    with pytest.raises(DataError, match="region 'region'"):
        run(library(problem)[0], [problem.x[:, :4]])


def test_switches_are_set_for_one_run():
    before = cudnn.benchmark, cudnn.allow_tf32
    with _switches(is_benchmarked=not before[0]):
        assert (cudnn.benchmark, cudnn.allow_tf32) == (not before[0], False)
    assert (cudnn.benchmark, cudnn.allow_tf32) == before


def rejections(problem: Problem) -> dict[str, str]:
    found = list_tactics(problem.workload(), H200)
    return {x.source: x.reason for x in found if isinstance(x, Rejected)}


def test_reasons(rng: np.random.Generator):
    wide = Case(C=4096, N=4096, groups=256, size=(2, 2))
    assert (
        "256 groups as one convolution would have weights of"
        in rejections(float_problem(wide, rng))["triton"]
    )
    assert "spatial axes" in rejections(integer_problem(CASES[6], rng))["triton"]
    assert "float32" in rejections(float_problem(Case(), rng, torch.float32))["triton"]
    mixed = replace(float_problem(Case(), rng), x=integer_problem(Case(), rng).x)
    assert set(rejections(mixed)) == {"triton", "cudnn"}
    b = Builder(SUM)
    row = Expression(b.operands, (), (0,), (True,))
    assert "rows" in rejections(replace(integer_problem(Case(), rng), epilogue=row))["triton"]
    reduced = b.build(b("sub", 0, b("row_mean", 0)))
    assert "rows" in rejections(replace(integer_problem(Case(), rng), epilogue=reduced))["triton"]
