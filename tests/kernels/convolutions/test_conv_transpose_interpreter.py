# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions: our kernel in Triton's interpreter, the library on the CPU."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.regions.expression import IDENTITY, Operand
from quantrt.regions.region import ConvTranspose
from quantrt.tactics.cuda.convolutions.conv_transpose import list_tactics
from quantrt.tactics.cuda.tactic import DEQUANTIZED, Rejected
from quantrt.tactics.cuda.timing.check import off_by_one_ratio
from tests.kernels.convolutions.cases import agrees, channels_last, retiled, run
from tests.kernels.memory_bound.expressions import Builder, constant, scalar
from tests.kernels.problems import Problem

H200 = gpu_named("H200")
SMALL = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}


@dataclass(frozen=True)
class Case:
    K: int = 16
    C: int = 8
    size: tuple[int, ...] = (5, 7)
    kernel: tuple[int, ...] = (2, 2)
    images: int = 2
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    groups: int = 1

    @property
    def id(self) -> str:
        sizes = ("x".join(map(str, x)) for x in (self.size, self.kernel, self.strides, self.pads) if x)
        return f"{self.images}x{self.K}to{self.C}_" + "_".join(sizes)

    def formula(self) -> ConvTranspose:
        rank = len(self.kernel)
        return ConvTranspose(
            x=("up", 0),
            w=("up", 1),
            weight="w",
            kernel=self.kernel,
            strides=self.strides or self.kernel,
            dilations=self.dilations or (1,) * rank,
            pads=self.pads or (0,) * (2 * rank),
            output_padding=self.output_padding or (0,) * rank,
            groups=self.groups,
            epilogue=IDENTITY,
        )


def problem_of(case: Case, dtype: torch.dtype, rng: np.random.Generator) -> Problem:
    shape, kernel = (case.images, case.K, *case.size), (case.K, case.C // case.groups, *case.kernel)
    if dtype == torch.int8:
        x = torch.from_numpy(rng.integers(-128, 128, shape, dtype=np.int8))
        weight = rng.integers(-127, 128, kernel, dtype=np.int8)
    else:
        x = torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype)
        weight = (rng.standard_normal(kernel) / case.K**0.5).astype(np.float32)
    name = "float32" if dtype == torch.int8 else str(dtype).removeprefix("torch.")
    return Problem(case.formula(), channels_last(x), weight, outputs=(name,))


def with_residual(problem: Problem, rng: np.random.Generator) -> Problem:
    """Codes and floats of relu(sums * scale + bias + residual)."""
    b = Builder(
        Operand("accumulator"), constant("scale"), constant("bias"), Operand("tensor", "r"), scalar(0.05)
    )
    y = b("max", b("add", b("add", b("mul", 0, 1), 2), 3), b.const(0.0))
    (want,) = problem.expected()
    residual = torch.from_numpy(rng.standard_normal(want.shape).astype(np.float32)).half()
    channels = want.shape[1]
    axes = [1] * (want.dim() - 2)
    constants = {
        "scale": (rng.random(channels) + 0.5).astype(np.float32) / np.float32(want.float().std()),
        "bias": rng.standard_normal((channels, *axes)).astype(np.float32),
    }
    return replace(
        problem,
        formula=replace(problem.formula, epilogue=b.build(y, b("quantize", y, 4))),
        tensors=(channels_last(residual),),
        outputs=("float16", "int8"),
        constants=constants,
    )


BLOCKS = [
    Case(),
    Case(K=41, C=7, size=(3, 5)),
    Case(K=64, C=3, size=(4, 4), kernel=(4, 4), images=1),
    Case(C=16, kernel=(1, 3), size=(7, 1)),
    Case(kernel=(2,), size=(29,)),
    Case(K=1, C=1, size=(1, 1), images=1),
]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16], ids=str)
@pytest.mark.parametrize("case", BLOCKS, ids=lambda case: case.id)
def test_blocks(case: Case, dtype: torch.dtype, rng: np.random.Generator):
    problem = problem_of(case, dtype, rng)
    tactic = retiled(problem.tactics("triton")[0], **SMALL)
    agrees(problem, tactic)
    if dtype == torch.int8:
        assert torch.equal(run(tactic, problem.inputs)[0], problem.expected()[0])


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16], ids=str)
@pytest.mark.parametrize("case", [BLOCKS[0], BLOCKS[1], BLOCKS[4]], ids=lambda case: case.id)
def test_a_residual_and_codes(case: Case, dtype: torch.dtype, rng: np.random.Generator):
    problem = with_residual(problem_of(case, dtype, rng), rng)
    tactic = retiled(problem.tactics("triton")[0], **SMALL)
    assert (off_by_one_ratio(problem.workload(), tactic) == 0.0) == (dtype == torch.int8)
    agrees(problem, tactic)


def test_float32_and_bfloat16(rng: np.random.Generator):
    for dtype in (torch.float32, torch.bfloat16):
        problem = problem_of(Case(), dtype, rng)
        agrees(problem, retiled(problem.tactics("triton")[0], **SMALL))


def test_the_kernel_of_one_shape_serves_all(rng: np.random.Generator):
    first = problem_of(Case(), torch.int8, rng)
    tactic = retiled(first.tactics("triton")[0], **SMALL)
    for images, size in ((1, (1, 1)), (3, (4, 9)), (0, (5, 7))):
        other = problem_of(Case(images=images, size=size), torch.int8, rng)
        other = replace(other, weight=first.weight)
        for x in (other.x, other.x.contiguous()):
            (y,) = run(tactic, [x])
            assert torch.equal(y, other.expected()[0]) if images else y.numel() == 0
    with pytest.raises(DataError, match="16 channels on the second"):
        run(tactic, [torch.zeros(2, 5, 5, 7, dtype=torch.int8)])


LIBRARY = [
    Case(),
    Case(kernel=(4, 4), strides=(2, 2), pads=(1, 1, 1, 1)),
    Case(kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1)),
    Case(kernel=(3, 3), strides=(2, 1), pads=(0, 1, 2, 0)),
    Case(kernel=(3, 2), strides=(1, 1), dilations=(2, 1)),
    Case(kernel=(2, 2), groups=4),
    Case(kernel=(3,), strides=(2,), pads=(1, 0), size=(11,)),
    Case(kernel=(2, 2, 2), size=(3, 2, 4)),
]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("case", LIBRARY, ids=lambda case: case.id)
def test_the_library(case: Case, dtype: torch.dtype, rng: np.random.Generator):
    problem = problem_of(case, dtype, rng)
    if dtype == torch.int8:  # sums are rounded to float16 on the way
        b = Builder(Operand("accumulator"), scalar(1e-3))
        formula = replace(problem.formula, epilogue=b.build(b("mul", 0, 1)))
        problem = replace(problem, formula=formula, outputs=("float16",))
    (tactic,) = problem.tactics("cudnn")
    assert (DEQUANTIZED in tactic.name.split()) == (dtype == torch.int8)
    agrees(problem, tactic)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16], ids=str)
def test_the_library_with_an_epilogue(dtype: torch.dtype, rng: np.random.Generator):
    problem = with_residual(problem_of(LIBRARY[1], dtype, rng), rng)
    (tactic,) = problem.tactics("cudnn")
    assert [draft.runner for draft in tactic.drafts][-2:] == ["transposed_convolution", "rows"]
    agrees(problem, tactic)


@pytest.mark.parametrize("case", LIBRARY[1:6] + LIBRARY[7:], ids=lambda case: case.id)
def test_what_our_kernel_does_not_compute(case: Case, rng: np.random.Generator):
    found = list_tactics(problem_of(case, torch.int8, rng).workload(), H200)
    assert isinstance(found[0], Rejected) and found[0].source == "triton"
