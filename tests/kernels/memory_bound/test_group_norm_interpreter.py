# SPDX-License-Identifier: Apache-2.0
"""Our norms over groups of channels in Triton's interpreter, held against a reference in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.regions.expression import Operand
from quantrt.tactics.cuda.memory_bound.group_norm import list_tactics
from quantrt.tactics.cuda.tactic import Rejected, Tactic
from quantrt.tactics.cuda.timing.check import check
from tests.kernels.convolutions.cases import channels_last, run
from tests.kernels.memory_bound.expressions import Builder, constant
from tests.kernels.memory_bound.group_norms import (
    H200,
    NORMAL,
    Case,
    Problem,
    affine_of,
    problem_of,
    silu_to_codes,
)

CASES = [
    Case(),
    Case(C=16, groups=16, size=(5, 3)),
    Case(C=41, groups=1, size=(41,), images=1),
    Case(C=129, groups=3, size=(3, 5, 2)),
    Case(C=64, groups=2, size=(11, 12)),
    Case(C=7, groups=7, size=(129,)),
    Case(C=1, groups=1, size=(1, 1), images=3),
    Case(C=160, groups=16, size=(3, 3), images=1),
]


def agrees(problem: Problem, tactic: Tactic) -> None:
    outputs = run(tactic, problem.inputs)
    assert check(problem.workload(), tactic, outputs[: len(problem.outputs)], problem.expected()) is None
    assert [y.stride() for y in outputs] == [channels_last(y).stride() for y in outputs]


def with_parts(tactic: Tactic, programs: int) -> Tactic:
    (draft,) = tactic.drafts
    return replace(tactic, drafts=(replace(draft, options={**draft.options, "programs": programs}),))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_both_ways(case: Case, rng: np.random.Generator):
    problem = problem_of(case, torch.float16, rng)
    for tactic in problem.one_of_each():
        agrees(problem, tactic)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_floats(dtype: torch.dtype, rng: np.random.Generator):
    problem = problem_of(Case(), dtype, rng)
    for tactic in problem.one_of_each():
        agrees(problem, tactic)


@pytest.mark.parametrize("programs", [1, 3, 1000])
def test_any_number_of_parts(programs: int, rng: np.random.Generator):
    problem = problem_of(Case(C=24, groups=3, size=(23, 19), images=1), torch.float32, rng)
    for tactic in problem.tactics():
        if "parts" in tactic.name.split():
            agrees(problem, with_parts(tactic, programs))


@pytest.mark.parametrize("case", [Case(C=20, size=(30, 23)), Case(C=6, groups=6, size=(500,))])
def test_a_mean_that_is_large_beside_the_deviation_costs_no_digits(case: Case, rng: np.random.Generator):
    """Sums of squares would: 100 ** 2 has 14 of float32's 24 bits before the point, 0.1 ** 2 none."""
    problem = problem_of(case, torch.float32, rng)
    problem.x.mul_(0.1).add_(100.0)
    for tactic in problem.one_of_each():
        for programs in (1, 64):
            agrees(problem, with_parts(tactic, programs))


def test_a_first_pixel_far_from_all_others(rng: np.random.Generator):
    problem = problem_of(Case(C=8, groups=2, size=(40, 30)), torch.float32, rng)
    problem.x[:, :, 0, 0] = 5000.0
    for tactic in problem.one_of_each():
        agrees(problem, tactic)


def test_large_floats_do_not_overflow(rng: np.random.Generator):
    problem = problem_of(Case(), torch.float16, rng)
    problem.x.copy_(torch.where(problem.x > 0, 60000.0, -60000.0))
    for tactic in problem.one_of_each():
        agrees(problem, tactic)


def test_equal_elements_become_zeros(rng: np.random.Generator):
    problem = problem_of(Case(), torch.float16, rng)
    problem.x.fill_(7.0)
    for tactic in problem.one_of_each():
        (y,) = run(tactic, problem.inputs)[:1]
        assert not y.any()


def test_what_is_no_number_spoils_its_group_alone(rng: np.random.Generator):
    problem = problem_of(Case(), torch.float32, rng)
    problem.x[1, 7, 3, 3] = float("nan")
    for tactic in problem.one_of_each():
        (y,) = run(tactic, problem.inputs)[:1]
        assert y[1, 5:10].isnan().all()
        assert not y[0].isnan().any() and not y[1, :5].isnan().any() and not y[1, 10:].isnan().any()


@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[7]], ids=lambda case: case.id)
def test_affine_silu_and_codes(case: Case, rng: np.random.Generator):
    problem = problem_of(case, torch.float16, rng, constants=affine_of(case.C, rng))
    for has_floats, outputs in ((False, ("int8",)), (True, ("float16", "int8"))):
        formula = replace(problem.formula, epilogue=silu_to_codes(has_floats=has_floats))
        one = replace(problem, formula=formula, outputs=outputs)
        for tactic in one.one_of_each():
            agrees(one, tactic)


@pytest.mark.parametrize("case", [CASES[0], CASES[4]], ids=lambda case: case.id)
def test_operands_of_pixels_and_of_channels(case: Case, rng: np.random.Generator):
    """y = (norm(x + shift) * gamma * (1 + scale[n, c]) + residual), the shift per channel of an image too."""
    b = Builder(NORMAL, constant("gamma"), Operand("tensor", "scale"), Operand("tensor", "residual"))
    scaled = b("mul", b("mul", 0, 1), b("add", 2, b.const(1.0)))
    epilogue = b.build(b("add", scaled, 3))
    base = problem_of(case, torch.float16, rng, outputs=("float16",))
    image = (case.images, case.C, 1, 1)
    shift, scale = (torch.from_numpy(rng.standard_normal(image).astype(np.float32)) for _ in range(2))
    residual = torch.from_numpy(rng.standard_normal(base.x.shape).astype(np.float32)).half()
    problem = replace(
        base,
        formula=replace(base.formula, epilogue=epilogue, shift=("add", 1)),
        tensors=(shift.half(), scale, channels_last(residual)),
        constants={"gamma": affine_of(case.C, rng)["gamma"]},
    )
    for tactic in problem.one_of_each():
        agrees(problem, tactic)
    one_for_all = replace(problem, tensors=(shift[:1].half(), scale[:1], residual))
    for tactic in problem.one_of_each():
        agrees(one_for_all, tactic)
    wide = torch.full((case.images, 3 * case.C, 1, 1), float("nan"), dtype=torch.float16)
    part = wide[:, case.C : 2 * case.C].copy_(shift)  # of a merged embedding: images lie further apart
    for tactic in problem.one_of_each():
        agrees(replace(problem, tensors=(part, *problem.tensors[1:])), tactic)


def test_the_same_input_gives_the_same_bits(rng: np.random.Generator):
    problem = problem_of(Case(C=32), torch.float16, rng)
    for tactic in problem.one_of_each():
        first, second = (run(tactic, problem.inputs)[0] for _ in range(2))
        assert torch.equal(first, second)


def test_other_shapes_and_memory_formats(rng: np.random.Generator):
    """The kernels of one shape serve all: other batches and sizes, rows of pixels, none at all."""
    case = Case(C=24, groups=3)
    for tactic in problem_of(case, torch.float16, rng).one_of_each():
        for images, size in ((3, (12, 5)), (1, (1, 1)), (0, (7, 9))):
            other = problem_of(replace(case, images=images, size=size), torch.float16, rng)
            for x in (other.x, other.x.contiguous()):
                output = run(tactic, [x])[0]
                assert output.shape == other.x.shape
                want = other.expected()
                assert not images or check(other.workload(), tactic, [output], want) is None


def test_what_is_not_the_region_is_an_error(rng: np.random.Generator):
    for tactic in problem_of(Case(), torch.float16, rng).one_of_each():
        with pytest.raises(DataError, match="cannot compute the norm of region 'region'"):
            run(tactic, [torch.zeros(2, 5, 7, 9, dtype=torch.float16)])


def test_what_no_kernel_normalizes_is_rejected(rng: np.random.Generator):
    problem = problem_of(Case(), torch.float32, rng)
    found = list_tactics(replace(problem, x=problem.x.double()).workload(), H200)
    assert [type(row) for row in found] == [Rejected, Rejected]
    assert all("float64" in row.reason for row in found)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_the_library(dtype: torch.dtype, rng: np.random.Generator):
    case = Case()
    name = str(dtype).removeprefix("torch.")
    plain = problem_of(case, dtype, rng, outputs=(name,))
    (tactic,) = plain.tactics("torch")
    assert [draft.runner for draft in tactic.drafts] == ["group_normalization"]
    agrees(plain, tactic)
    formula = replace(plain.formula, epilogue=silu_to_codes(), shift=("add", 1))
    shift = torch.from_numpy(rng.standard_normal((case.images, case.C, 1, 1)).astype(np.float32)).to(dtype)
    whole = replace(
        plain, formula=formula, outputs=("int8",), tensors=(shift,), constants=affine_of(case.C, rng)
    )
    (tactic,) = whole.tactics("torch")
    assert [draft.runner for draft in tactic.drafts] == ["group_normalization", "rows"]
    agrees(whole, tactic)
