# SPDX-License-Identifier: Apache-2.0
"""Pools by torch with a rows kernel for the epilogue, on the CPU, held against the reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantrt.errors import DataError
from quantrt.regions.expression import Operand
from quantrt.tactics.cuda.memory_bound.pool import list_tactics
from quantrt.tactics.cuda.tactic import DEQUANTIZED, Rejected
from tests.kernels.convolutions.cases import agrees, channels_last, run
from tests.kernels.memory_bound.expressions import Builder, constant, scalar
from tests.kernels.memory_bound.pools import H200, Case, problem_of, with_epilogue

CASES = [
    Case(C=5),
    Case(C=5, size=(10, 7), has_ceil=True),
    Case(C=5, size=(10, 7), has_ceil=True, counts_padding=True),
    Case(C=3, size=(10,), kernel=(3,), strides=(2,), pads=(1, 1), dilations=(1,)),
    Case(C=7, kernel=()),
    Case(C=7, size=(3, 4, 5), kernel=(), keeps_axes=False),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_floats(case: Case, kind: str, dtype: torch.dtype, rng: np.random.Generator):
    problem = problem_of(case, kind, dtype, rng)
    problem = replace(problem, outputs=(str(dtype).removeprefix("torch."),))
    assert len(problem.tactics("torch")[0].drafts) == 1
    agrees(problem, *problem.tactics("torch"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_maxima_of_codes(case: Case, rng: np.random.Generator):
    problem = problem_of(case, "max", torch.int8, rng)
    (tactic,) = problem.tactics("torch")
    assert DEQUANTIZED in tactic.name.split()
    assert torch.equal(run(tactic, problem.inputs)[0], problem.expected()[0])


@pytest.mark.parametrize("case", [CASES[0], CASES[4]], ids=lambda case: case.id)
def test_an_epilogue_is_a_kernel_of_its_own(case: Case, rng: np.random.Generator):
    b = Builder(Operand("accumulator"), constant("bias"), Operand("tensor", "r"), scalar(0.05))
    y = b("max", b("add", b("add", 0, 1), 2), b.const(0.0))
    base = problem_of(case, "average", torch.float16, rng)
    residual = torch.from_numpy(rng.standard_normal(base.shape).astype(np.float32)).half()
    bias = rng.standard_normal((case.C, 1, 1)).astype(np.float32)
    problem = with_epilogue(
        base,
        b.build(y, b("quantize", y, 3)),
        tensors=(channels_last(residual),),
        outputs=("float16", "int8"),
        constants={"bias": bias},
    )
    (tactic,) = problem.tactics("torch")
    assert [draft.runner for draft in tactic.drafts] == ["pooling", "rows"]
    agrees(problem, *problem.tactics("torch"))


@pytest.mark.parametrize(
    ("case", "kind", "reason"),
    [
        (Case(pads=(0, 0, 1, 1)), "max", "between the sides"),
        (Case(pads=(2, 2, 2, 2)), "average", "half of its windows"),
        (Case(dilations=(2, 1)), "average", "gaps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_torch_does_not_pool_is_rejected(case: Case, kind: str, reason: str, rng: np.random.Generator):
    found = list_tactics(problem_of(case, kind, torch.float16, rng).workload(), H200)[-1]
    assert isinstance(found, Rejected)
    assert reason in found.reason


def test_an_image_that_is_too_small_is_an_error(rng: np.random.Generator):
    problem = problem_of(Case(pads=(0, 0, 0, 0)), "average", torch.float32, rng)
    (tactic,) = problem.tactics("torch")
    with pytest.raises(DataError, match="cannot compute the pool of region 'region'"):
        run(tactic, [torch.zeros(1, 16, 2, 2)])
