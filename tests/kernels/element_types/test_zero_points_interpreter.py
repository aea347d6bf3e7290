# SPDX-License-Identifier: Apache-2.0
"""Codes with zero points through every kernel of images, in Triton's interpreter: those of whole numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.dtypes import INT8
from quantrt.gpu import gpu_named
from quantrt.kernels.split_k import tiles as split_tiles
from quantrt.quantize.scales.qparams import QParams, dequantize, quantize_array
from quantrt.regions.expression import Operand
from quantrt.regions.region import Conv
from quantrt.runtime.cuda.reference.cudnn_meaning import compute_graph
from quantrt.tactics.cuda.convolutions import cudnn_graph
from quantrt.tactics.cuda.convolutions.conv2d import list_tactics
from quantrt.tactics.cuda.memory_bound.pool import list_tactics as list_pools
from quantrt.tactics.cuda.tactic import Rejected, Tactic, Workload
from tests.kernels.convolutions.cases import Case, Problem, channels_last, codes, integer_problem, run
from tests.kernels.memory_bound import pools
from tests.kernels.memory_bound.expressions import Builder, constant, scalar

H200 = gpu_named("H200")

Z_X, Z_R, Z_Y = -128, -36, -118
S_R, S_Y = np.float32(0.05), np.float32(0.02)

POINTWISE = Case(C=48, N=41, size=(7, 3), kernel=(1, 1), pads=(0, 0, 0, 0))
DEEP = Case(C=320, N=9, size=(5, 4), kernel=(1, 1), pads=(0, 0, 0, 0))
SPLIT = Case(C=256, N=41, size=(5, 7))
DEPTHWISE = Case(C=33, N=33, groups=33, size=(6, 5), kernel=(5, 5), strides=(2, 2), pads=(2, 1, 2, 3))
PATCHES = Case(C=32, N=32, groups=32, size=(6, 5), pads=(1, 1, 1, 2))
STEM = Case(C=3, N=7, size=(15, 13), kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3))
LINE = Case(C=5, N=7, size=(41,), kernel=(3,), strides=(2,), pads=(1, 2), dilations=(1,))
CASES = [POINTWISE, DEEP, Case(C=40, N=17), SPLIT, DEPTHWISE, PATCHES, STEM, LINE]


def shifted(case: Case, rng: np.random.Generator) -> tuple[Problem, Workload, np.ndarray]:
    """Codes of a convolution with a residual of codes, all with zero points; and the codes to expect."""
    problem = integer_problem(case, rng)
    residual = channels_last(torch.from_numpy(codes(rng, case.shape)))
    weight = problem.weight.astype(np.int64)
    zero = Z_X * weight.reshape(case.N, -1).sum(1)
    scale = ((rng.random(case.N) + 0.5) / (weight[0].size ** 0.5 * 5000)).astype(np.float32)
    bias = rng.standard_normal(case.N).astype(np.float32)
    b = Builder(
        Operand("accumulator"),
        constant("accumulator zero"),
        constant("scale"),
        constant("bias"),
        Operand("tensor", "r"),
        *map(scalar, (Z_R, float(S_R), float(S_Y), Z_Y)),
    )
    x = b("add", b("mul", b("sub", 0, 1), 2), 3)
    x = b("add", x, b("mul", b("sub", 4, 5), 6))
    epilogue = b.build(b("quantize_at", b("max", x, b.const(0.0)), 7, 8))
    constants = {"accumulator zero": zero.astype(np.float32), "scale": scale, "bias": bias}
    problem = replace(problem, epilogue=epilogue, tensors=[residual], outputs=("int8",), constants=constants)
    workload = problem.workload()
    assert isinstance(workload.formula, Conv)
    pad_code = Z_X if any(case.pads) else 0
    workload = replace(workload, formula=replace(workload.formula, pad_code=pad_code))
    return problem, workload, expected(problem, residual, scale, bias)


def expected(problem: Problem, residual: torch.Tensor, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """What the grids mean: sums of whole numbers, then one float32 operation after the other."""
    case, rank = problem.case, len(problem.case.size)
    whole = problem.x.double() - Z_X
    pads = [n for i in reversed(range(rank)) for n in (case.pads[i], case.pads[rank + i])]
    convolve = (torch.nn.functional.conv1d, torch.nn.functional.conv2d)[rank - 1]
    sums = convolve(
        torch.nn.functional.pad(whole, pads),
        torch.from_numpy(problem.weight).double(),
        stride=case.strides,
        dilation=case.dilations,
        groups=case.groups,
    ).numpy()
    assert np.abs(sums).max() < 2**24
    shape = (-1, *[1] * rank)
    y = sums.astype(np.float32) * scale.reshape(shape) + bias.reshape(shape)
    y = y + dequantize(residual.numpy(), grid(S_R, Z_R))
    return quantize_array(np.maximum(y, np.float32(0)), grid(S_Y, Z_Y))


def grid(scale: np.float32, zero_point: int) -> QParams:
    return QParams(np.asarray(scale), np.asarray(zero_point, np.int32), INT8, None, -128, 127)


def families(workload: Workload) -> list[Tactic]:
    """The first tactic of every kernel."""
    found = [x for x in list_tactics(workload, H200) if isinstance(x, Tactic) and x.source == "triton"]
    return list({tuple(draft.runner for draft in x.drafts): x for x in reversed(found)}.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_codes_are_those_of_whole_numbers(
    case: Case, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(split_tiles, "SLOWEST_RATIO", 100.0)
    problem, workload, want = shifted(case, rng)
    tactics = families(workload)
    runners = {draft.runner for tactic in tactics for draft in tactic.drafts}
    assert "split_conv2d" in runners or case != SPLIT
    assert ("add_borders" in runners) == (any(case.pads) and case.groups == 1 and case != STEM)
    assert ("thin_conv2d" in runners) == ("pad_channels" in runners) == (case == STEM) or case == LINE
    for tactic in tactics:
        if tactic.drafts[0].runner not in ("hopper_conv2d", "conv_hopper"):  # Gluon has no interpreter
            (got,) = run(tactic, problem.inputs)
            assert np.array_equal(got.numpy(), want), tactic.name
    assert len(np.unique(want)) > 50


@pytest.mark.parametrize("case", [POINTWISE, DEEP, DEPTHWISE, STEM], ids=lambda case: case.id)
@pytest.mark.parametrize("zero_point", [-76, 34])
def test_a_zero_point_may_be_anywhere(
    case: Case, zero_point: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(f"{__name__}.Z_X", zero_point)
    problem, workload, want = shifted(case, rng)
    for tactic in families(workload):
        if tactic.drafts[0].runner not in ("hopper_conv2d", "conv_hopper"):  # Gluon has no interpreter
            (got,) = run(tactic, problem.inputs)
            assert np.array_equal(got.numpy(), want), tactic.name


def test_a_graph_for_cudnn_means_the_same(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cudnn_graph, "LEAST_PRODUCTS", 1)
    problem, workload, want = shifted(POINTWISE, rng)
    found = (x for x in list_tactics(workload, H200) if isinstance(x, Tactic))
    (draft,) = (tactic.drafts[0] for tactic in found if tactic.drafts[0].graphs)
    names = [x.name for x in problem.epilogue.operands if x.kind == "constant"]
    given = {
        "constant": lambda place: torch.from_numpy(problem.constants[names[place]]),
        "tensor": lambda place: problem.tensors[place],
        "scalar": lambda value: torch.tensor(value, dtype=torch.float32),
    }
    operands = [given[kind](value) for kind, value in draft.options["sources"]]
    weight = torch.from_numpy(np.moveaxis(problem.weight, 1, -1).copy())
    (got,) = compute_graph(draft.graphs[0], problem.x, weight, operands)
    assert np.array_equal(got.numpy(), want)


@pytest.mark.parametrize("case", [Case(C=40, N=17), LINE], ids=lambda case: case.id)
def test_behind_borders_cudnn_convolves_padded_codes_too(
    case: Case, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cudnn_graph, "LEAST_PRODUCTS", 1)
    problem, workload, want = shifted(case, rng)
    found = [x for x in list_tactics(workload, H200) if isinstance(x, Tactic) and x.source == "cudnn"]
    (tactic,) = (x for x in found if x.drafts[0].runner == "add_borders")
    (got,) = run(tactic, problem.inputs)
    assert np.array_equal(got.numpy(), want)
    images, channels, *size = problem.x.shape
    half = len(size)
    padded = [n + case.pads[i] + case.pads[half + i] for i, n in enumerate(size)]
    assert tactic.workspace_bytes == images * channels * np.prod(padded)


MEANS = [
    pools.Case(C=16, counts_padding=True),
    pools.Case(C=41, size=(7, 7), kernel=(5, 5), pads=(2, 1, 2, 0), strides=(1, 1), counts_padding=True),
    pools.Case(C=5, size=(10, 7), has_ceil=True),
    pools.Case(C=7, size=(6, 5)),
    pools.Case(kernel=(), C=19, size=(5, 7)),
]


def pooled(case: pools.Case, kind: str, rng: np.random.Generator) -> pools.Problem:
    """A pool of codes with a zero point, stored on another grid."""
    b = Builder(Operand("accumulator"), *map(scalar, (Z_X, float(S_R), float(S_Y), Z_Y)))
    epilogue = b.build(b("quantize_at", b("mul", b("sub", 0, 1), 2), 3, 4))
    problem = pools.with_epilogue(pools.problem_of(case, kind, torch.int8, rng), epilogue, outputs=("int8",))
    pad_code = Z_X if case.counts_padding else 0
    return replace(problem, formula=replace(problem.formula, pad_code=pad_code))


@pytest.mark.parametrize("case", MEANS, ids=lambda case: case.id)
def test_means_of_codes_take_padding_for_zeros(case: pools.Case, rng: np.random.Generator):
    problem = pooled(case, "average", rng)
    (got,) = run(problem.tactics("triton")[0], problem.inputs)
    (codes_expected,) = problem.expected()
    assert torch.equal(got, codes_expected)
    values = dequantize(problem.x.numpy(), grid(S_R, Z_X))
    floats = replace(
        pools.problem_of(case, "average", torch.float32, rng), x=channels_last(torch.from_numpy(values))
    )
    want = quantize_array(floats.expected()[0].numpy(), grid(S_Y, Z_Y)).astype(int)
    apart = np.abs(got.numpy().astype(int) - want)
    assert apart.max() <= 1  # a mean of floats is rounded more than once
    assert np.count_nonzero(apart) <= apart.size // 200


def test_maxima_of_codes_are_theirs_on_another_grid(rng: np.random.Generator):
    problem = pooled(pools.Case(), "max", rng)
    assert torch.equal(run(problem.tactics("triton")[0], problem.inputs)[0], problem.expected()[0])


def test_what_cannot_take_a_zero_point_says_so(rng: np.random.Generator):
    case = pools.Case(C=5, size=(10, 7), has_ceil=True, counts_padding=True)
    found = list_pools(pooled(case, "average", rng).workload(), H200)
    assert all(isinstance(row, Rejected) for row in found)
    assert "windows that end behind it" in found[0].reason and "torch's as 0" in found[-1].reason
    _, workload, _ = shifted(Case(C=40, N=17), rng)
    reasons = {row.name: row.reason for row in list_tactics(workload, H200) if isinstance(row, Rejected)}
    assert "of the code -128, and cuDNN's of 0" in reasons["convolution graph"]
    assert "has a zero point" in reasons["convolution dequantized"]
