# SPDX-License-Identifier: Apache-2.0
"""Rows of tables in the kernel of expressions, against the reference, in Triton's interpreter."""

import numpy as np
import pytest
import torch

from quantrt.gpu import gpu_named
from quantrt.regions.expression import Expression, Operand
from quantrt.regions.region import Rows
from quantrt.runtime.cuda.reference.compute import compute
from quantrt.tactics.cuda.memory_bound.rows import list_tactics
from quantrt.tactics.cuda.tactic import Tactic, Workload
from quantrt.tactics.cuda.timing.sample_inputs import random_inputs
from tests.kernels.memory_bound.expressions import TENSOR, Builder, constant, scalar
from tests.kernels.run_tactic import facts_of, run_tactic

H200 = gpu_named("H200")
INDEX = Operand("tensor", "ids", ("gather", 1))
TABLE = Operand("lookup", "codes", ("gather", 0))
SCALES = Operand("lookup", "scales", ("gather", 0))
OTHER_INDEX = Operand("tensor", "types", ("other", 1))
OTHER_TABLE = Operand("lookup", "others", ("other", 0))


def centred_sum() -> Expression:
    """Codes times the scales of their rows, plus floats of another table, less the mean of a row."""
    b = Builder(INDEX, TABLE, SCALES, OTHER_INDEX, OTHER_TABLE, constant("bias"), scalar(0.5))
    total = b("add", b("add", b("mul", 1, 2), b("mul", 4, 6)), 5)
    return b.build(b("sub", total, b("row_mean", total)), total)


def constants(rng: np.random.Generator, rows: int, columns: int) -> dict[str, np.ndarray]:
    return {
        "codes": rng.integers(-127, 128, (rows, columns), np.int8),
        "scales": rng.uniform(0.01, 0.02, (rows, 1)).astype(np.float32),
        "others": rng.standard_normal((3, columns)).astype(np.float16),
        "bias": rng.standard_normal(columns).astype(np.float32),
    }


def workload(inputs: list[torch.Tensor], arrays: dict[str, np.ndarray], expression: Expression) -> Workload:
    outputs = ("float16", "float32")[: len(expression.outputs)]
    names = {x.name for x in expression.operands}
    used = {name: array for name, array in arrays.items() if name in names}
    return Workload("region", Rows(expression), tuple(map(facts_of, inputs)), outputs, None, used)


def expected(wanted: Workload, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    arrays = {name: torch.from_numpy(array) for name, array in wanted.constants.items()}
    return compute(wanted.formula, inputs, wanted.outputs, None, arrays)


def check_every_kernel(wanted: Workload, inputs: list[torch.Tensor]) -> None:
    found = list_tactics(wanted, H200)
    assert all(isinstance(tactic, Tactic) for tactic in found)
    want = expected(wanted, inputs)
    for tactic in (found[0], found[-1]):
        for number, spec in enumerate(tactic.drafts[0].kernels):
            got, launched = run_tactic(tactic, inputs, lambda place, spec, least=number: place >= least)
            assert launched == [spec]
            for mine, theirs in zip(got, want, strict=True):
                assert torch.equal(mine.isnan(), theirs.isnan())
                torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("columns", [1, 7, 129])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (2, 5)])
def test_every_kernel_equals_the_reference(columns: int, shape: tuple[int, int], rng: np.random.Generator):
    ids = torch.from_numpy(rng.integers(-41, 41, shape))
    types = torch.from_numpy(rng.integers(0, 3, shape[-1:]).astype(np.int32))
    wanted = workload([ids, types], constants(rng, 41, columns), centred_sum())
    check_every_kernel(wanted, [ids, types])


def test_rows_that_are_not_there_are_nan_and_read_no_foreign_memory(rng: np.random.Generator):
    b = Builder(INDEX, TABLE, SCALES)
    ids = torch.tensor([[0, 40, 41], [-41, -42, 2**40]])
    wanted = workload([ids], constants(rng, 41, 7), b.build(b("mul", 1, 2)))
    assert expected(wanted, [ids])[0].isnan()[..., 0].tolist() == [[False, False, True], [False, True, True]]
    check_every_kernel(wanted, [ids])


def test_numbers_in_any_memory(rng: np.random.Generator):
    """Transposed, and of more axes than a kernel has."""
    expression = Builder(INDEX, TABLE, SCALES)
    expression = expression.build(expression("mul", 1, 2))
    arrays = constants(rng, 41, 7)
    for ids in (
        torch.from_numpy(rng.integers(0, 41, (5, 3))).t(),
        torch.from_numpy(rng.integers(0, 41, (2, 3, 2, 3, 2))).permute(4, 1, 3, 0, 2),
    ):
        wanted = workload([ids], arrays, expression)
        tactic = list_tactics(wanted, H200)[0]
        got, _ = run_tactic(tactic, [ids])
        assert torch.equal(got[0], expected(wanted, [ids])[0])


def test_no_numbers_at_all(rng: np.random.Generator):
    b = Builder(INDEX, TABLE, SCALES)
    timed = torch.zeros(2, 5, dtype=torch.int64)
    tactic = list_tactics(workload([timed], constants(rng, 41, 7), b.build(b("mul", 1, 2))), H200)[0]
    assert run_tactic(tactic, [timed[:, :0]])[0][0].shape == (2, 0, 7)


def test_sampled_numbers_reach_over_the_whole_table(rng: np.random.Generator):
    b = Builder(TENSOR, INDEX, TABLE, SCALES)
    inputs = [torch.zeros(400, 7), torch.zeros(400, dtype=torch.int64)]
    wanted = workload(inputs, constants(rng, 41, 7), b.build(b("add", 0, b("mul", 2, 3))))
    sampled = random_inputs(wanted, torch.device("cpu"))[1]
    assert (int(sampled.min()), int(sampled.max())) == (0, 40)
