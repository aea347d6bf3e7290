# SPDX-License-Identifier: Apache-2.0
"""Our convolution in Triton's interpreter: code for code what the reference computes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression, Operand
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
from tests.kernels.memory_bound.expressions import Builder, constant, hard_swish, scalar

H200 = gpu_named("H200")
SUM = Operand("accumulator")
SMALL = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32}

CASES = [
    Case(),
    Case(C=3, N=7, size=(15, 13), kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    Case(C=5, N=41, size=(9, 11), strides=(2, 1), pads=(1, 0, 2, 1), dilations=(1, 2)),
    Case(C=33, N=41, size=(5, 7), pads=(2, 2, 2, 2), dilations=(2, 2)),
    Case(C=16, N=7, size=(9, 5), kernel=(5, 5), strides=(2, 2), pads=(2, 2, 2, 2)),
    Case(C=64, N=17, size=(6, 5), pads=(0, 0, 0, 0)),
    Case(C=16, N=41, size=(7, 3), kernel=(1, 1), pads=(0, 0, 0, 0)),
    Case(C=33, N=7, size=(7, 9), kernel=(1, 1), strides=(2, 2), pads=(0, 0, 0, 0)),
    Case(C=3, N=5, size=(4, 4), kernel=(1, 1), pads=(1, 1, 1, 1)),
    Case(C=1, N=1, size=(1, 1), kernel=(1, 1), pads=(0, 0, 0, 0), images=1),
    Case(C=5, N=7, size=(41,), kernel=(3,), strides=(2,), pads=(1, 2), dilations=(2,)),
    Case(C=16, N=9, size=(37,), kernel=(1,), strides=(1,), pads=(0, 0), dilations=(1,)),
]

DEPTHWISE_CASES = [
    Case(C=16, N=16, groups=16),
    Case(C=41, N=41, groups=41, size=(9, 11), strides=(2, 1), pads=(1, 0, 2, 1), dilations=(1, 2)),
    Case(C=33, N=33, groups=33, size=(6, 5), kernel=(5, 5), strides=(2, 2), pads=(2, 2, 2, 2)),
    Case(C=32, N=32, groups=32, size=(9, 5), kernel=(7, 3), pads=(0, 0, 0, 0)),
    Case(C=7, N=7, groups=7, kernel=(1, 1), pads=(0, 0, 0, 0)),
    Case(C=5, N=5, groups=5, size=(41,), kernel=(3,), strides=(2,), pads=(2, 0), dilations=(1,)),
]

GROUPED_CASES = [
    Case(C=32, N=48, groups=2, size=(5, 6), kernel=(1, 1), pads=(0, 0, 0, 0)),
    Case(C=15, N=10, groups=5, size=(7, 6), strides=(2, 1), pads=(1, 0, 2, 1)),
    Case(C=8, N=16, groups=8, size=(6, 5)),
    Case(C=12, N=8, groups=4, size=(23,), kernel=(3,), strides=(1,), pads=(1, 1), dilations=(1,)),
]


def relu_codes(b: Builder, x: int) -> int:
    """codes(max(x, 0)) in steps of the operand behind all others."""
    return b("quantize", b("max", x, b.const(0.0)), len(b.operands) - 1)


def biased(*more: Operand) -> tuple[Builder, int]:
    """sums * scale[n] + bias[n], with further operands behind."""
    b = Builder(SUM, constant("scale"), constant("bias"), *more)
    return b, b("add", b("mul", 0, 1), 2)


def own(problem: Problem) -> list[Tactic]:
    """Tactics of one kernel."""
    found = [x for x in list_tactics(problem.workload(), H200) if x.source == "triton"]
    assert all(isinstance(x, Tactic) for x in found)
    return [x for x in found if [draft.runner for draft in x.drafts] in (["conv2d"], ["depthwise"])]


def variants(problem: Problem) -> list[Tactic]:
    """One small tile, with the epilogue in two parts, and one that walks the taps as one axis."""
    first = own(problem)[0]
    if problem.case.groups > 1:
        return [retiled(first, BLOCK_M=64, BLOCK_N=32)]
    by_tap = retiled(first, **SMALL, IS_PACKED=False, PARTS=2)
    is_packable = max(problem.case.kernel) > 1
    return [by_tap, retiled(first, **SMALL, IS_PACKED=True, PARTS=1)] if is_packable else [by_tap]


def agrees(problem: Problem, tactic: Tactic) -> None:
    outputs, expected = run(tactic, problem.inputs), problem.expected()
    assert check(problem.workload(), tactic, outputs, expected) is None
    assert [y.stride() for y in outputs] == [channels_last(y).stride() for y in expected]


@pytest.mark.parametrize("case", CASES + DEPTHWISE_CASES + GROUPED_CASES, ids=lambda case: case.id)
def test_sums_of_codes_are_exact(case: Case, rng: np.random.Generator):
    problem = integer_problem(case, rng)
    (want,) = problem.expected()
    for tactic in variants(problem):
        (got,) = run(tactic, problem.inputs)
        assert torch.equal(got, want), tactic.name


@pytest.mark.parametrize("case", CASES + DEPTHWISE_CASES + GROUPED_CASES, ids=lambda case: case.id)
def test_floats_agree_with_the_reference(case: Case, rng: np.random.Generator):
    problem = float_problem(case, rng)
    for tactic in variants(problem):
        agrees(problem, tactic)


@pytest.mark.parametrize(
    "case",
    [Case(C=24, N=41, size=(4, 8)), Case(C=17, N=17, size=(4, 5), groups=17)],
    ids=lambda case: case.id,
)
def test_every_tile_that_is_proposed_computes_the_same(case: Case, rng: np.random.Generator):
    b, x = biased(scalar(0.02))
    problem = with_epilogue(integer_problem(case, rng), rng, b.build(relu_codes(b, x)), outputs=("int8",))
    (want,) = problem.expected()
    tactics = own(problem)
    assert len({tactic.name for tactic in tactics}) == len(tactics) > 5
    for tactic in tactics:
        assert torch.equal(run(tactic, problem.inputs)[0], want), tactic.name


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[10]], ids=lambda case: case.id)
def test_channels_are_padded_where_they_are_few(
    case: Case, layout: torch.memory_format, rng: np.random.Generator
):
    problem = integer_problem(case, rng)
    if layout == torch.contiguous_format:
        problem.x = problem.x.contiguous()
    found = [x for x in list_tactics(problem.workload(), H200) if isinstance(x, Tactic)]
    tactics = [x for x in found if x.drafts[0].runner == "pad_channels"]
    assert tactics[0] == next(x for x in found if x.drafts[0].runner != "thin_conv2d")
    for tactic in [tactics[0], *tactics[1:3]]:
        assert torch.equal(run(tactic, problem.inputs)[0], problem.expected()[0]), tactic.name
    problem.x = problem.x[..., 2:]  # pixels that are not evenly spaced
    assert torch.equal(run(tactics[0], problem.inputs)[0], problem.expected()[0])
    empty = run(tactics[0], [problem.x[:0]])[0]
    assert empty.shape[0] == 0
    with pytest.raises(DataError, match="region 'region'"):
        run(tactics[0], [problem.x[:, :2]])


def test_no_channels_are_added_to_four(rng: np.random.Generator):
    found = list_tactics(float_problem(Case(C=4), rng).workload(), H200)
    assert all(draft.runner != "pad_channels" for x in found if isinstance(x, Tactic) for draft in x.drafts)


def clipped(b: Builder, x: int) -> int:
    return b("min", b("max", x, b.const(-0.5)), b.const(1.25))


@pytest.mark.parametrize(
    "activation", [hard_swish, clipped, lambda b, x: x], ids=["hard swish", "clip", "none"]
)
def test_codes_behind_an_activation(activation: Callable[[Builder, int], int], rng: np.random.Generator):
    b, x = biased(scalar(0.02))
    epilogue = b.build(b("quantize", activation(b, x), 3))
    problem = with_epilogue(integer_problem(CASES[2], rng), rng, epilogue, outputs=("int8",))
    for tactic in variants(problem):
        assert torch.equal(run(tactic, problem.inputs)[0], problem.expected()[0])


@pytest.mark.parametrize(
    "case", [CASES[3], CASES[6], DEPTHWISE_CASES[1]], ids=["product", "pointwise", "depthwise"]
)
def test_residual_codes_and_two_outputs(case: Case, rng: np.random.Generator):
    b, x = biased(Operand("tensor", "r"), scalar(0.05), scalar(0.02))
    summed = b("add", x, b("mul", 3, 4))
    epilogue = b.build(relu_codes(b, summed), summed)
    residual = channels_last(torch.from_numpy(codes(rng, case.shape)))
    problem = with_epilogue(
        integer_problem(case, rng), rng, epilogue, tensors=[residual], outputs=("int8", "float16")
    )
    for tactic in variants(problem):
        is_early = dict(tactic.drafts[0].kernels[0].constants).get("IS_EARLY", False)
        assert is_early == (case == CASES[6])
        got = run(tactic, problem.inputs)
        assert all(map(torch.equal, got, problem.expected())), tactic.name


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_residual_floats_in_any_strides(dtype: torch.dtype, rng: np.random.Generator):
    case = CASES[2]
    b, x = biased(Operand("tensor", "r"), scalar(0.02))
    epilogue = b.build(relu_codes(b, b("add", x, 3)))
    residual = torch.from_numpy(rng.standard_normal(case.shape).astype(np.float32)).to(dtype)
    residual[0, 0, 0, 0] = float("nan")
    problem = with_epilogue(integer_problem(case, rng), rng, epilogue, tensors=[residual], outputs=("int8",))
    problem.x = problem.x.contiguous()
    for tactic in variants(problem):
        (got,) = run(tactic, problem.inputs)
        assert torch.equal(got, problem.expected()[0])
        assert got[0, 0, 0, 0] == -128  # of NaN


def test_codes_saturate(rng: np.random.Generator):
    b, x = biased(scalar(1e-4))
    problem = with_epilogue(
        integer_problem(Case(), rng), rng, b.build(b("quantize", x, 3)), outputs=("int8",)
    )
    (got,) = run(variants(problem)[0], problem.inputs)
    assert torch.equal(got, problem.expected()[0])
    assert {-128, 127} <= set(got.unique().tolist())


@pytest.mark.parametrize("case", [Case(C=33, N=7), DEPTHWISE_CASES[0]], ids=["product", "depthwise"])
def test_the_largest_sums(case: Case, rng: np.random.Generator):
    problem = integer_problem(case, rng)
    problem.x = torch.full_like(problem.x, -128)
    problem.weight = np.full_like(problem.weight, -127)
    for tactic in variants(problem):
        (got,) = run(tactic, problem.inputs)
        assert torch.equal(got, problem.expected()[0])
        assert got.max() == 128 * 127 * (case.C // case.groups) * 9


def test_one_constant_for_all_channels(rng: np.random.Generator):
    b = Builder(SUM, constant("one"))
    problem = replace(
        integer_problem(Case(), rng),
        epilogue=b.build(b("mul", 0, 1)),
        constants={"one": np.asarray(0.125, np.float32)},
    )
    assert torch.equal(run(variants(problem)[0], problem.inputs)[0], problem.expected()[0])


def test_a_view_that_begins_anywhere_and_other_shapes(rng: np.random.Generator):
    """A kernel serves every batch and image size; x may be a slice off the alignment."""
    problem = integer_problem(Case(), rng)
    tactic = variants(problem)[0]
    for shape in ((1, 8, 3, 4), (5, 8, 1, 9)):
        whole = channels_last(torch.from_numpy(codes(rng, (shape[0] + 1, *shape[1:]))))
        problem.x = whole[1:]
        assert torch.equal(run(tactic, problem.inputs)[0], problem.expected()[0])


@pytest.mark.parametrize("size", [(7, 9), (1, 1)])
def test_nothing_to_compute(size: tuple[int, int], rng: np.random.Generator):
    problem = integer_problem(Case(pads=(0, 0, 0, 0)), rng)
    tactic = variants(problem)[0]
    images = 0 if size == (7, 9) else 2
    (got,) = run(tactic, [torch.zeros((images, 8, *size), dtype=torch.int8)])
    assert got.shape == (images, 16, max(0, size[0] - 2), max(0, size[1] - 2))


def test_shapes_that_do_not_fit_are_refused(rng: np.random.Generator):
    b = Builder(SUM, Operand("tensor", "r"))
    case = Case()
    residual = torch.from_numpy(codes(rng, case.shape))
    problem = with_epilogue(integer_problem(case, rng), rng, b.build(b("add", 0, 1)), tensors=[residual])
    tactic = variants(problem)[0]
    with pytest.raises(DataError, match="region 'region'"):
        run(tactic, [problem.x[:, :4], residual])
    with pytest.raises(DataError, match="region 'region'"):
        run(tactic, [problem.x, residual[:1]])


def test_expressions_may_hand_on_a_constant(rng: np.random.Generator):
    """An output that depends on no pixel still fills its tensor."""
    problem = with_epilogue(
        integer_problem(Case(), rng),
        rng,
        Expression((SUM, constant("scale"), scalar(3.5)), (), (1, 2), (False, False)),
        outputs=("float32", "float16"),
    )
    got = run(variants(problem)[0], problem.inputs)
    assert all(map(torch.equal, got, problem.expected()))


def test_groups_are_stored_without_the_zeros_between_them(rng: np.random.Generator):
    problem = float_problem(GROUPED_CASES[0], rng)
    (draft,) = own(problem)[0].drafts
    assert draft.constants[0].make().size == problem.weight.size
