# SPDX-License-Identifier: Apache-2.0
"""Convolutions that read repeated pixels where they lie, in Triton's interpreter."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.regions.expression import Operand
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.candidates import list_tactics
from quantrt.tactics.cuda.convolutions.resized_conv import _problem_of, _whole, why_not
from quantrt.tactics.cuda.tactic import Rejected, Tactic
from quantrt.tactics.cuda.timing.check import check, off_by_one_ratio
from tests.kernels.convolutions.cases import (
    Case,
    channels_last,
    codes,
    float_problem,
    integer_problem,
    retiled,
    run,
    with_epilogue,
)
from tests.kernels.convolutions.resized import expected, resized
from tests.kernels.convolutions.test_conv2d_interpreter import SMALL, biased, relu_codes
from tests.kernels.memory_bound.expressions import scalar

A100 = gpu_named("A100")

CASES = [
    (Case(C=32), (2, 2)),
    (Case(C=33, N=41, size=(5, 7)), (3, 3)),
    (Case(C=20, N=7, size=(3, 5), pads=(2, 2, 2, 2), dilations=(2, 2)), (2, 2)),
    (Case(C=16, N=9, size=(4, 3), pads=(0, 1, 2, 1), dilations=(1, 2)), (3, 2)),
    (Case(C=16, N=9, size=(4, 5), kernel=(5, 5), pads=(2, 2, 2, 2)), (1, 2)),
    (Case(C=24, N=17, size=(3, 4), pads=(0, 0, 0, 0)), (2, 2)),
    (Case(C=16, N=5, size=(1, 1), kernel=(2, 2), pads=(0, 0, 0, 0), images=1), (4, 4)),
    (Case(C=16, N=8, size=(3, 4), kernel=(1, 1), pads=(0, 0, 0, 0)), (2, 2)),
]
IDS = [f"{case.id} x{repeats[0]}x{repeats[1]}" for case, repeats in CASES]


def gathered(workload) -> Tactic:
    """Whole windows, which are listed where there are no phases."""
    found = _whole(workload, _problem_of(workload), A100)
    return found[0]


@pytest.mark.parametrize(("case", "repeats"), CASES, ids=IDS)
def test_sums_of_codes_are_those_of_the_larger_image(case, repeats, rng: np.random.Generator):
    problem = integer_problem(case, rng)
    workload = resized(problem, repeats)
    tactic = gathered(workload)
    (want,) = expected(problem, repeats)
    (reference,) = compute(workload.formula, problem.inputs, ("float32",), torch.from_numpy(problem.weight))
    assert torch.equal(reference, want)
    for one in (tactic, retiled(tactic, **SMALL)):
        assert torch.equal(run(one, problem.inputs)[0], want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_floats_too(dtype, rng: np.random.Generator):
    problem = float_problem(Case(C=40, N=24, size=(5, 3)), rng, dtype)
    workload = resized(problem, (2, 2))
    tactic = gathered(workload)
    assert check(workload, tactic, run(tactic, problem.inputs), expected(problem, (2, 2))) is None


def test_codes_with_a_residual_and_padding_of_another_code(rng: np.random.Generator):
    """Code for code, at another batch and size than was listed."""
    b, y = biased(Operand("tensor", "r"), scalar(0.03), scalar(0.05))
    epilogue = b.build(relu_codes(b, b("add", y, b("mul", 3, 4))))
    case = Case(C=32, N=24, size=(4, 5), images=3)

    def numbers(case: Case):
        residual = codes(rng, (case.images, case.N, case.size[0] * 2, case.size[1] * 2))
        tensors = [channels_last(torch.from_numpy(residual))]
        return with_epilogue(integer_problem(case, rng), rng, epilogue, tensors=tensors, outputs=("int8",))

    problem = numbers(case)
    workload = resized(problem, (2, 2))
    padded = replace(workload.formula.convolution, pad_code=-7)
    workload = replace(workload, formula=replace(workload.formula, convolution=padded))
    tactic = gathered(workload)
    assert off_by_one_ratio(workload, tactic) == 0.0
    constants = {name: torch.from_numpy(array) for name, array in problem.constants.items()}
    for other in (
        problem,
        replace(numbers(replace(case, images=1, size=(3, 7))), constants=problem.constants),
    ):
        weight = torch.from_numpy(problem.weight)
        want = compute(workload.formula, other.inputs, ("int8",), weight, constants)
        assert torch.equal(run(tactic, other.inputs)[0], want[0])


def test_what_no_kernel_computes(rng: np.random.Generator):
    problem = integer_problem(Case(C=32), rng)
    workload = resized(problem, (2, 2))
    assert why_not(workload, A100) is None

    def of(resize=None, convolution=None):
        formula = workload.formula
        changed = replace(
            formula,
            resize=replace(formula.resize, **(resize or {})),
            convolution=replace(formula.convolution, **(convolution or {})),
        )
        return why_not(replace(workload, formula=changed), A100)

    assert "just repeated" in of(resize={"is_nearest": False})
    assert "just repeated" in of(resize={"scales": (1.0, 1.0)})
    for change in ({"strides": (2, 2)}, {"groups": 2}, {"pads": (-1, 0, 0, 0)}):
        assert "strides, groups" in of(convolution=change)
    single = replace(workload, inputs=(replace(workload.inputs[0], dtype="float32"),))
    assert "float32" in why_not(single, A100)


def test_blocks_of_a_sum_never_span_taps(rng: np.random.Generator):
    few = resized(integer_problem(Case(C=3), rng), (2, 2))
    found = [x for x in list_tactics(few, A100) if isinstance(x, Tactic)]
    assert len(found) > 1
    assert not any("packed" in x.name for x in found)


def in_phases(workload) -> Tactic:
    found = [x for x in list_tactics(workload, A100) if isinstance(x, Tactic) and "phases" in x.name]
    assert not any("packed" in x.name or "windows" in x.name for x in found)
    return found[0]


@pytest.mark.parametrize(
    ("case", "repeats"),
    [
        (Case(C=32), (2, 2)),
        (Case(C=64, N=41, size=(5, 7)), (3, 3)),
        (Case(C=32, N=17, size=(3, 4), pads=(0, 0, 0, 0)), (2, 2)),
        (Case(C=32, N=72, size=(4, 6), kernel=(5, 3), pads=(2, 1, 2, 1), images=3), (3, 2)),
        (Case(C=48, N=24, size=(6, 4), kernel=(5, 5), pads=(4, 4, 4, 4), dilations=(2, 2)), (4, 4)),
    ],
    ids=lambda value: value.id if isinstance(value, Case) else None,
)
def test_codes_in_phases_of_halves_have_the_same_sums(case, repeats, rng: np.random.Generator):
    problem = integer_problem(case, rng)
    workload = resized(problem, repeats)
    assert torch.equal(run(in_phases(workload), problem.inputs)[0], expected(problem, repeats)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_floats_in_phases(dtype, rng: np.random.Generator):
    problem = float_problem(Case(C=64, N=24, size=(5, 3)), rng, dtype)
    workload = resized(problem, (2, 2))
    tactic = in_phases(workload)
    assert len(tactic.drafts) == 1
    assert check(workload, tactic, run(tactic, problem.inputs), expected(problem, (2, 2))) is None


def test_phases_with_a_residual_and_padding_of_another_code(rng: np.random.Generator):
    """Code for code, at another batch and size than was listed."""
    b, y = biased(Operand("tensor", "r"), scalar(0.03), scalar(0.05))
    epilogue = b.build(relu_codes(b, b("add", y, b("mul", 3, 4))))

    def numbers(case: Case):
        residual = codes(rng, (case.images, case.N, case.size[0] * 2, case.size[1] * 2))
        tensors = [channels_last(torch.from_numpy(residual))]
        return with_epilogue(integer_problem(case, rng), rng, epilogue, tensors=tensors, outputs=("int8",))

    case = Case(C=32, N=24, size=(4, 5), images=3)
    problem = numbers(case)
    workload = resized(problem, (2, 2))
    padded = replace(workload.formula.convolution, pad_code=-7)
    workload = replace(workload, formula=replace(workload.formula, convolution=padded))
    tactic = in_phases(workload)
    assert (len(tactic.drafts), off_by_one_ratio(workload, tactic)) == (2, 0.0)
    constants = {name: torch.from_numpy(array) for name, array in problem.constants.items()}
    for other in (
        problem,
        replace(numbers(replace(case, images=1, size=(3, 7))), constants=problem.constants),
    ):
        want = compute(workload.formula, other.inputs, ("int8",), torch.from_numpy(problem.weight), constants)
        assert torch.equal(run(tactic, other.inputs)[0], want[0])


def test_what_has_no_phases_is_gathered_alone(rng: np.random.Generator):
    problem = integer_problem(Case(C=32, kernel=(1, 1), pads=(0, 0, 0, 0)), rng)
    (rejected,) = (x for x in list_tactics(resized(problem, (2, 2)), A100) if isinstance(x, Rejected))
    assert rejected.name == "conv2d phases in halves"
    assert "no tap" in rejected.reason
    assert any("repeated" in x.name for x in list_tactics(resized(problem, (2, 2)), A100))
