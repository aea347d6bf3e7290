# SPDX-License-Identifier: Apache-2.0
"""Our pools in Triton's interpreter, held against the reference: maxima of codes code for code."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.regions.expression import Operand
from quantrt.tactics.cuda.memory_bound.pool import list_tactics
from quantrt.tactics.cuda.tactic import Rejected
from quantrt.tactics.cuda.timing.check import check, off_by_one_ratio
from tests.kernels.convolutions.cases import channels_last, retiled, run
from tests.kernels.memory_bound.expressions import Builder, constant, scalar
from tests.kernels.memory_bound.pools import H200, Case, Problem, problem_of, with_epilogue

POOLED = Operand("accumulator")
TYPES = [torch.int8, torch.float16]
SMALL = {"BLOCK_M": 64, "BLOCK_N": 32}

WINDOWS = [
    Case(),
    Case(C=3, size=(15, 13)),
    Case(C=64, size=(9, 8), strides=(1, 1)),
    Case(C=5, size=(9, 11), strides=(2, 1), pads=(1, 0, 2, 1), dilations=(1, 2)),
    Case(C=5, size=(10, 7), has_ceil=True),
    Case(C=5, size=(10, 7), pads=(0, 1, 1, 0), has_ceil=True, counts_padding=True),
    Case(C=16, size=(6, 6), kernel=(2, 2), pads=(0, 0, 0, 0), has_ceil=True, strides=(5, 3)),
    Case(C=41, size=(7, 7), kernel=(5, 5), pads=(2, 2, 2, 2), strides=(1, 1), counts_padding=True),
    Case(C=7, size=(9, 8), kernel=(8, 8), strides=(1, 1), pads=(1, 0, 0, 3)),
    Case(C=16, size=(5, 4), kernel=(2, 2), pads=(0, 0, 0, 0)),
    Case(C=7, size=(5, 4), kernel=(1, 1), pads=(0, 0, 0, 0), strides=(1, 1)),
    Case(C=9, size=(41,), kernel=(3,), strides=(2,), pads=(1, 2), dilations=(2,)),
    Case(C=1, size=(1, 1), kernel=(1, 1), pads=(0, 0, 0, 0), images=1),
    Case(C=17, size=(3, 3), kernel=(1, 1), pads=(2, 2, 2, 2), strides=(2, 2)),
]

IMAGES = [
    Case(kernel=()),
    Case(kernel=(), C=3, size=(41, 29), keeps_axes=False),
    Case(kernel=(), C=129, size=(7, 7)),
    Case(kernel=(), C=5, size=(129,)),
    Case(kernel=(), C=7, size=(3, 4, 5), keeps_axes=False),
    Case(kernel=(), C=1, size=(1, 1), images=1),
]


def agrees(problem: Problem, **constants: int) -> None:
    tactic = retiled(problem.tactics("triton")[0], **constants)
    outputs = run(tactic, problem.inputs)
    wanted = problem.expected()
    assert check(problem.workload(), tactic, outputs, wanted) is None
    assert [y.stride() for y in outputs] == [channels_last(y).stride() for y in outputs]
    for output, want in zip(outputs, wanted, strict=True):
        if problem.formula.kind == "max" or problem.x.dtype == torch.int8:  # nothing in it is rounded twice
            assert torch.equal(output.nan_to_num(nan=7e4), want.nan_to_num(nan=7e4))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("case", WINDOWS, ids=lambda case: case.id)
def test_windows(case: Case, kind: str, dtype: torch.dtype, rng: np.random.Generator):
    agrees(problem_of(case, kind, dtype, rng), **SMALL)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("case", IMAGES, ids=lambda case: case.id)
def test_whole_images(case: Case, kind: str, dtype: torch.dtype, rng: np.random.Generator):
    agrees(problem_of(case, kind, dtype, rng), BLOCK_M=16, BLOCK_N=32)


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("case", [WINDOWS[4], IMAGES[2]], ids=lambda case: case.id)
def test_float32(case: Case, kind: str, rng: np.random.Generator):
    agrees(problem_of(case, kind, torch.float32, rng), **SMALL)


@pytest.mark.parametrize("case", [WINDOWS[0], IMAGES[0]], ids=lambda case: case.id)
def test_every_tile_agrees(case: Case, rng: np.random.Generator):
    problem = problem_of(case, "average", torch.int8, rng)
    tactics = problem.tactics("triton")
    assert len({tactic.name for tactic in tactics}) == len(tactics) > 1
    want = problem.expected()
    for tactic in tactics:
        assert torch.equal(run(tactic, problem.inputs)[0], want[0])


@pytest.mark.parametrize("case", [WINDOWS[0], IMAGES[0]], ids=lambda case: case.id)
def test_a_maximum_hands_on_nan_and_infinity(case: Case, rng: np.random.Generator):
    problem = problem_of(case, "max", torch.float16, rng)
    problem.x[0, 1, 3, 3] = float("nan")
    problem.x[1, 2, 4, 4] = float("inf")
    problem.x[1, 3] = -float("inf")
    agrees(problem)
    (want,) = problem.expected()
    assert want.isnan().any() and not want[1].isnan().any()


@pytest.mark.parametrize("case", [WINDOWS[0], IMAGES[0]], ids=lambda case: case.id)
def test_sums_do_not_overflow(case: Case, rng: np.random.Generator):
    problem = problem_of(case, "average", torch.float16, rng)
    problem.x.fill_(60000.0)
    agrees(problem)
    assert problem.expected()[0].max() == 60000.0


@pytest.mark.parametrize("kind", ["max", "average"])
def test_extreme_codes(kind: str, rng: np.random.Generator):
    case = Case(C=2, size=(18, 18), kernel=(17, 17), strides=(1, 1), pads=(0, 0, 0, 0))
    problem = problem_of(case, kind, torch.int8, rng)
    problem.x[:, 0], problem.x[:, 1] = -128, 127
    agrees(problem)
    assert problem.expected()[0][0, :, 1, 1].tolist() == [-128, 127]


def test_a_mean_of_codes_becomes_codes(rng: np.random.Generator):
    """Floats and codes of relu(mean * scale + residual), the residual as codes."""
    b = Builder(POOLED, constant("bias"), Operand("tensor", "r"), scalar(0.05), scalar(0.02), scalar(0.03))
    dequantized = b("mul", 0, 3)
    total = b("add", b("add", dequantized, 1), b("mul", 2, 4))
    y = b("max", total, b.const(0.0))
    epilogue = b.build(y, b("quantize", y, 5))
    for case in (WINDOWS[4], IMAGES[2], IMAGES[1]):
        base = problem_of(case, "average", torch.int8, rng)
        axes = len(base.shape) - 2
        bias = rng.standard_normal((case.C, *[1] * axes)).astype(np.float32)
        residual = torch.from_numpy(rng.integers(-128, 128, base.shape, dtype=np.int8))
        problem = with_epilogue(
            base,
            epilogue,
            tensors=(channels_last(residual) if axes else residual,),
            outputs=("float16", "int8"),
            constants={"bias": bias},
        )
        assert off_by_one_ratio(problem.workload(), problem.tactics("triton")[0]) == 0.0
        agrees(problem, **SMALL)


def test_codes_and_floats_of_a_maximum(rng: np.random.Generator):
    b = Builder(POOLED, scalar(0.1))
    epilogue = b.build(b("mul", 0, 1), 0)
    problem = with_epilogue(problem_of(Case(), "max", torch.int8, rng), epilogue, outputs=("float16", "int8"))
    agrees(problem)
    floats, codes = problem.expected()
    assert torch.equal(floats, (codes.float() * torch.tensor(0.1)).half())


@pytest.mark.parametrize("case", [WINDOWS[0], IMAGES[0]], ids=lambda case: case.id)
def test_other_shapes_and_memory_formats(case: Case, rng: np.random.Generator):
    """The kernel of one shape serves all: other batches and sizes, rows of pixels, none at all."""
    tactic = problem_of(case, "max", torch.int8, rng).tactics("triton")[0]
    for images, size in ((3, (12, 5)), (1, (3, 3)), (0, (7, 9))):
        other = problem_of(replace(case, images=images, size=size), "max", torch.int8, rng)
        for x in (other.x, other.x.contiguous()):
            (output,) = run(tactic, [x])
            assert output.shape == other.shape
            assert torch.equal(output, other.expected()[0]) if images else output.numel() == 0


def test_what_is_not_the_region_is_an_error(rng: np.random.Generator):
    tactic = problem_of(Case(), "max", torch.int8, rng).tactics("triton")[0]
    with pytest.raises(DataError, match="cannot compute the pool of region 'region'"):
        run(tactic, [torch.zeros(2, 5, 7, 9, dtype=torch.int8)])
    with pytest.raises(DataError, match="16 channels on the second"):
        run(tactic, [torch.zeros(2, 16, 9, dtype=torch.int8)])


def test_what_no_kernel_pools_is_rejected(rng: np.random.Generator):
    problem = problem_of(Case(), "max", torch.float32, rng)
    wrong = replace(problem, x=problem.x.double())
    found = list_tactics(wrong.workload(), H200)
    assert [type(row) for row in found] == [Rejected, Rejected]
    assert "float64" in found[0].reason and "float64" in found[1].reason
