# SPDX-License-Identifier: Apache-2.0
"""Our depthwise convolution in patches, in Triton's interpreter: code for code the reference's."""

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.kernels.depthwise_patches.spec import MAX_HELD
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
    retiled,
    run,
    with_epilogue,
)
from tests.kernels.memory_bound.expressions import Builder, constant, scalar

H200 = gpu_named("H200")


def depthwise(C: int, **changes: object) -> Case:
    return Case(C=C, N=C, groups=C, **changes)


LARGE = depthwise(12, size=(9, 11), kernel=(7, 5), pads=(3, 2, 3, 2))
CASES = [
    depthwise(16),
    depthwise(36, size=(13, 6), strides=(2, 2), pads=(0, 0, 1, 1)),
    depthwise(8, size=(9, 11), strides=(2, 1), pads=(1, 0, 2, 1), dilations=(1, 2)),
    depthwise(8, size=(9, 5), kernel=(2, 3), strides=(2, 3), pads=(1, 0, 0, 1)),
    depthwise(4, size=(11, 10), strides=(3, 2), pads=(2, 2, 2, 2), dilations=(1, 3), images=3),
    LARGE,
    depthwise(20, size=(5, 6), kernel=(1, 1), pads=(0, 0, 0, 0)),
    depthwise(8, size=(9, 10), kernel=(2, 4), pads=(1, 2, 0, 1)),
    depthwise(8, size=(41,), kernel=(3,), strides=(2,), pads=(2, 0), dilations=(1,)),
    depthwise(4, size=(1, 1), images=1),
]


def in_patches(problem: Problem) -> list[Tactic]:
    """The tactics of this kernel."""
    found = [x for x in list_tactics(problem.workload(), H200) if isinstance(x, Tactic)]
    return [x for x in found if x.drafts[0].runner == "depthwise_patches"]


def variants(problem: Problem) -> list[Tactic]:
    """Patches of one pixel, of odd width and of as many lines as the image, or nearly."""
    first = in_patches(problem)[0]
    return [retiled(first, ROWS=rows, COLUMNS=columns) for rows, columns in ((1, 1), (3, 3), (7, 2))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_sums_of_codes_are_exact(case: Case, rng: np.random.Generator):
    problem = integer_problem(case, rng)
    (want,) = problem.expected()
    for tactic in variants(problem):
        assert torch.equal(run(tactic, problem.inputs)[0], want), tactic.drafts


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_floats_agree_with_the_reference(case: Case, rng: np.random.Generator):
    problem = float_problem(case, rng)
    for tactic in variants(problem):
        assert check(problem.workload(), tactic, run(tactic, problem.inputs), problem.expected()) is None


@pytest.mark.parametrize("case", [CASES[0], LARGE], ids=["held", "read again"])
def test_every_patch_that_is_proposed_computes_the_same(case: Case, rng: np.random.Generator):
    b = Builder(Operand("accumulator"), constant("scale"), constant("bias"), scalar(0.02))
    relu = b("max", b("add", b("mul", 0, 1), 2), b.const(0.0))
    problem = with_epilogue(
        integer_problem(case, rng), rng, b.build(b("quantize", relu, 3)), outputs=("int8",)
    )
    (want,) = problem.expected()
    tactics = in_patches(problem)
    held = {dict(x.drafts[0].kernels[0].constants)["IS_HELD"] for x in tactics}
    assert held == {4 * case.kernel[0] * case.kernel[1] <= MAX_HELD}
    assert len({tactic.name for tactic in tactics}) == len(tactics) > 3
    for tactic in tactics:
        assert torch.equal(run(tactic, problem.inputs)[0], want), tactic.name


def test_residual_codes_and_two_outputs(rng: np.random.Generator):
    case = CASES[1]
    residual = Operand("tensor", "r")
    b = Builder(
        Operand("accumulator"), constant("scale"), constant("bias"), residual, scalar(0.05), scalar(0.02)
    )
    summed = b("add", b("add", b("mul", 0, 1), 2), b("mul", 3, 4))
    problem = with_epilogue(
        integer_problem(case, rng),
        rng,
        b.build(b("quantize", b("max", summed, b.const(0.0)), 5), summed),
        tensors=[channels_last(torch.from_numpy(codes(rng, case.shape)))],
        outputs=("int8", "float16"),
    )
    for tactic in variants(problem):
        assert all(map(torch.equal, run(tactic, problem.inputs), problem.expected())), tactic.drafts


@pytest.mark.parametrize("kernel", [(7, 7), (16, 3)], ids=["float32", "int32"])
def test_the_largest_sums(kernel: tuple[int, int], rng: np.random.Generator):
    """Of almost 49 products: float32 holds every integer up to 2**24."""
    problem = integer_problem(depthwise(4, size=(20, 9), kernel=kernel, pads=(3, 3, 3, 3)), rng)
    problem.x = torch.full_like(problem.x, -128)
    problem.weight = np.full_like(problem.weight, -127)
    (got,) = run(in_patches(problem)[0], problem.inputs)
    assert torch.equal(got, problem.expected()[0])
    assert got.max() == 128 * 127 * kernel[0] * kernel[1]


def test_infinity_reaches_no_other_window(rng: np.random.Generator):
    """Neighbours in a patch are computed from the same reads."""
    problem = float_problem(CASES[0], rng)
    problem.x[0, 3, 2, 4] = float("inf")
    problem.x[1, 5, 6, 8] = float("nan")
    (got,), (want,) = run(in_patches(problem)[0], problem.inputs), problem.expected()
    assert torch.equal(got.isfinite(), want.isfinite())
    assert 0 < want.isfinite().sum() < want.numel()


def test_other_batches_and_sizes_and_none(rng: np.random.Generator):
    problem = integer_problem(CASES[0], rng)
    tactic = in_patches(problem)[0]
    for shape in ((1, 16, 3, 4), (5, 16, 1, 9), (0, 16, 7, 9)):
        problem.x = channels_last(torch.from_numpy(codes(rng, shape)))
        assert torch.equal(run(tactic, problem.inputs)[0], problem.expected()[0])


def test_channels_that_are_no_whole_words_and_lines_apart_have_none(rng: np.random.Generator):
    assert not in_patches(integer_problem(depthwise(18), rng))
    assert not in_patches(integer_problem(depthwise(16, dilations=(2, 1)), rng))
    assert in_patches(float_problem(depthwise(18), rng))
    assert not in_patches(float_problem(depthwise(17), rng))


def test_more_patches_than_are_counted_are_refused(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    problem = integer_problem(CASES[0], rng)
    monkeypatch.setattr("quantrt.runtime.cuda.runners.depthwise_patches.MAX_PATCHES", 63)
    with pytest.raises(DataError, match="got 112 patches"):
        run(in_patches(problem)[0], problem.inputs)
