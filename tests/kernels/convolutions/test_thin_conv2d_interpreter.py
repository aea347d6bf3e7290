# SPDX-License-Identifier: Apache-2.0
"""Our convolution of few channels in Triton's interpreter: code for code what the reference computes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.regions.expression import Operand
from quantrt.tactics.cuda.convolutions.conv2d import list_tactics
from quantrt.tactics.cuda.tactic import Tactic
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

H200 = gpu_named("H200")
STEM = Case(C=3, N=7, size=(15, 41), kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3))
CASES = [
    STEM,
    Case(C=3, N=17, size=(9, 7), strides=(2, 2), pads=(0, 0, 1, 1)),
    Case(C=1, N=41, size=(7, 129), kernel=(5, 5), pads=(2, 2, 2, 2), images=1),
    Case(C=4, N=16, size=(12, 8), kernel=(4, 4), strides=(4, 4), pads=(0, 0, 0, 0)),
    Case(C=2, N=9, size=(41,), kernel=(9,), strides=(2,), pads=(4, 1), dilations=(1,)),
    Case(C=3, N=130, size=(1, 1), images=3),
]


def thin(problem: Problem) -> list[Tactic]:
    """The tactics of this kernel."""
    found = [x for x in list_tactics(problem.workload(), H200) if isinstance(x, Tactic)]
    return [x for x in found if x.drafts[0].runner == "thin_conv2d"]


def with_programs(tactic: Tactic, programs: int) -> Tactic:
    (draft,) = tactic.drafts
    return replace(tactic, drafts=(replace(draft, options={**draft.options, "programs": programs}),))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_sums_of_codes_are_exact(case: Case, layout: torch.memory_format, rng: np.random.Generator):
    problem = integer_problem(case, rng)
    if layout == torch.contiguous_format:
        problem.x = problem.x.contiguous()
    tactics = thin(problem)
    assert 0 < len(tactics) <= 6
    (want,) = problem.expected()
    for tactic in tactics[:: len(tactics) - 1]:
        assert torch.equal(run(tactic, problem.inputs)[0], want), tactic.name
        # Few programs, so that one computes many tiles.
        assert torch.equal(run(with_programs(tactic, 2), problem.inputs)[0], want), tactic.name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_floats_agree_with_the_reference(case: Case, rng: np.random.Generator):
    problem = float_problem(case, rng)
    tactic = thin(problem)[0]
    assert check(problem.workload(), tactic, run(tactic, problem.inputs), problem.expected()) is None


def test_infinity_reaches_no_other_window(rng: np.random.Generator):
    """Windows are read with a pixel or more behind them, whose weights are zero."""
    problem = float_problem(STEM, rng)
    problem.x[0, 1, 7, 20] = float("inf")
    problem.x[1, 0, 14, 40] = float("nan")
    (got,), (want,) = run(thin(problem)[0], problem.inputs), problem.expected()
    assert torch.equal(got.isfinite(), want.isfinite())
    assert 0 < want.isfinite().sum() < want.numel()


def test_codes_with_a_residual_and_two_outputs(rng: np.random.Generator):
    b = Builder(
        Operand("accumulator"),
        constant("scale"),
        constant("bias"),
        Operand("tensor"),
        *map(scalar, (0.05, 0.02)),
    )
    summed = b("add", b("add", b("mul", 0, 1), 2), b("mul", 3, 4))
    epilogue = b.build(b("quantize", b("max", summed, b.const(0.0)), 5), summed)
    residual = channels_last(torch.from_numpy(codes(rng, STEM.shape)))
    problem = with_epilogue(
        integer_problem(STEM, rng), rng, epilogue, tensors=[residual], outputs=("int8", "float16")
    )
    got = run(thin(problem)[0], problem.inputs)
    assert all(map(torch.equal, got, problem.expected()))


def test_views_and_other_shapes(rng: np.random.Generator):
    """A kernel serves every batch and image size, and x in any strides."""
    problem = integer_problem(STEM, rng)
    tactic = thin(problem)[0]
    for shape in ((1, 3, 7, 9), (3, 3, 33, 5)):
        whole = torch.from_numpy(codes(rng, (shape[0] + 1, shape[1], shape[2] + 2, shape[3] + 1)))
        problem.x = whole[1:, :, 2:, 1:].flip(1) if shape[0] == 1 else whole[1:, :, 2:, 1:]
        assert torch.equal(run(tactic, problem.inputs)[0], problem.expected()[0])
    assert run(tactic, [problem.x[:0]])[0].shape[0] == 0
    with pytest.raises(DataError, match="region 'region'"):
        run(tactic, [problem.x[:, :2]])


@pytest.mark.parametrize(
    "case",
    [
        replace(STEM, C=5),
        replace(STEM, dilations=(1, 2)),
        Case(C=3, N=5, size=(4, 4), kernel=(1, 1), pads=(1, 1, 1, 1)),
        Case(C=3, N=16, size=(32, 32), kernel=(16, 16), strides=(16, 16), pads=(0, 0, 0, 0)),
    ],
    ids=["channels", "dilated", "pointwise", "patches"],
)
def test_what_it_does_not_compute(case: Case, rng: np.random.Generator):
    assert not thin(integer_problem(case, rng))
