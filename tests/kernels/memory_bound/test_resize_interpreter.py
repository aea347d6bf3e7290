# SPDX-License-Identifier: Apache-2.0
"""Resized images: our kernel in Triton's interpreter, the library on the CPU, against the reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.gpu import gpu_named
from quantrt.kernels.resize.spec import ResizeProblem, configs, kernel_of
from quantrt.regions.expression import IDENTITY, Operand
from quantrt.regions.region import Resize
from quantrt.tactics.cuda.memory_bound.resize import list_tactics
from quantrt.tactics.cuda.tactic import Rejected
from tests.kernels.convolutions.cases import agrees, channels_last, retiled, run
from tests.kernels.convolutions.test_conv2d_compiled import CAPABILITIES
from tests.kernels.memory_bound.expressions import Builder, constant, scalar
from tests.kernels.problems import Problem

H200 = gpu_named("H200")
SMALL = {"BLOCK_M": 32, "BLOCK_N": 32}


def problem_of(
    shape: tuple[int, ...], scales: tuple[float, ...], dtype: torch.dtype, rng: np.random.Generator, **formula
) -> Problem:
    if dtype == torch.int8:
        x = torch.from_numpy(rng.integers(-128, 128, shape, dtype=np.int8))
    else:
        x = torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype)
    fields = {"is_nearest": True, "has_corners": False, **formula}
    name = str(dtype).removeprefix("torch.")
    made = Resize(("up", 0), fields["is_nearest"], scales, fields["has_corners"], IDENTITY)
    return Problem(made, channels_last(x), outputs=(name,))


REPEATED = [
    ((2, 16, 5, 7), (2, 2)),
    ((1, 41, 3, 4), (3, 1)),
    ((2, 3, 1, 1), (4, 4)),
    ((3, 8, 29), (2,)),
    ((1, 129, 2, 3), (1, 2)),
]


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(("shape", "scales"), REPEATED)
def test_repeated_pixels(shape, scales, dtype: torch.dtype, rng: np.random.Generator):
    problem = problem_of(shape, scales, dtype, rng)
    for tactic in (retiled(problem.tactics("triton")[0], **SMALL), *problem.tactics("torch")):
        agrees(problem, tactic)
        assert torch.equal(run(tactic, problem.inputs)[0], problem.expected()[0])


def test_codes_of_fp8(rng: np.random.Generator):
    problem = problem_of((2, 16, 5, 7), (2, 2), torch.float32, rng)
    x = channels_last((problem.x * 50).to(torch.float8_e4m3fn))
    problem = replace(problem, x=x, outputs=("float8_e4m3fn",))
    tactic = retiled(problem.tactics("triton")[0], **SMALL)
    (y,), (want,) = run(tactic, problem.inputs), problem.expected()
    assert y.dtype == torch.float8_e4m3fn
    assert torch.equal(y.float(), want.float())
    assert isinstance(list_tactics(problem.workload(), H200)[-1], Rejected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16], ids=str)
def test_an_epilogue(dtype: torch.dtype, rng: np.random.Generator):
    """Codes and floats of relu(x * scale + bias + residual)."""
    b = Builder(Operand("accumulator"), constant("bias"), Operand("tensor", "r"), scalar(0.05), scalar(0.04))
    y = b("max", b("add", b("add", b("mul", 0, 3), 1), 2), b.const(0.0))
    base = problem_of((2, 16, 5, 7), (2, 2), dtype, rng)
    residual = torch.from_numpy(rng.standard_normal((2, 16, 10, 14)).astype(np.float32)).half()
    problem = replace(
        base,
        formula=replace(base.formula, epilogue=b.build(y, b("quantize", y, 4))),
        tensors=(channels_last(residual),),
        outputs=("float16", "int8"),
        constants={"bias": rng.standard_normal((16, 1, 1)).astype(np.float32)},
    )
    for tactic in (retiled(problem.tactics("triton")[0], **SMALL), *problem.tactics("torch")):
        agrees(problem, tactic)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("shape", "scales", "has_corners"),
    [
        ((2, 8, 5, 7), (2, 2), True),
        ((2, 8, 5, 7), (2, 2), False),
        ((1, 3, 9), (1.5,), False),
        ((1, 4, 3, 2, 4), (2, 1, 3), True),
        ((1, 4, 3, 2, 4), (2, 1, 3), False),
    ],
)
def test_interpolation(shape, scales, *, has_corners: bool, dtype: torch.dtype, rng: np.random.Generator):
    problem = problem_of(shape, scales, dtype, rng, is_nearest=False, has_corners=has_corners)
    (tactic,) = problem.tactics("torch")
    agrees(problem, tactic)
    assert isinstance(list_tactics(problem.workload(), H200)[0], Rejected)


def test_the_kernel_of_one_shape_serves_all(rng: np.random.Generator):
    tactic = retiled(problem_of((2, 16, 5, 7), (2, 2), torch.int8, rng).tactics("triton")[0], **SMALL)
    for shape in ((1, 16, 1, 1), (3, 16, 9, 4), (0, 16, 5, 7)):
        other = problem_of(shape, (2, 2), torch.int8, rng)
        for x in (other.x, other.x.contiguous()):
            (y,) = run(tactic, [x])
            assert torch.equal(y, other.expected()[0]) if shape[0] else y.numel() == 0
    with pytest.raises(DataError, match="16 channels on the second"):
        run(tactic, [torch.zeros(2, 5, 5, 7, dtype=torch.int8)])


def test_it_compiles_everywhere(compiled_all):
    problem = ResizeProblem(2, 64, 64, 640, 2, 2, "int8", IDENTITY, (), ("int8",))
    spec = kernel_of(problem, configs(problem, H200)[0])
    (kernel,) = compiled_all([spec], CAPABILITIES)
    assert set(kernel.cubins) == set(CAPABILITIES)
    assert kernel.spills == 0
