# SPDX-License-Identifier: Apache-2.0
"""Divisions by what does not change along a row become products."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from quantrt.regions.expression import Expression, Instruction, Operand  # noqa: E402
from quantrt.regions.region import Rows  # noqa: E402
from quantrt.regions.strength import reduce_strength  # noqa: E402
from quantrt.runtime.cuda.reference.compute import compute  # noqa: E402

X, Y, S = Operand("tensor", "x"), Operand("tensor", "y"), Operand("scalar", value=0.3)


def computed(expression: Expression, *tensors):
    return compute(Rows(expression), tensors, ("float32",) * len(expression.outputs))


def values(*shape: int):
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_a_softmax_divides_once_per_row():
    softmax = Expression(
        (X,),
        (
            Instruction("row_max", (0,)),
            Instruction("sub", (0, 1)),
            Instruction("exp", (2,)),
            Instruction("row_sum", (3,)),
            Instruction("div", (3, 4)),
        ),
        (5,),
        (False,),
    )
    reduced = reduce_strength(softmax)
    assert [row.op for row in reduced.instructions] == [
        "row_max",
        "sub",
        "exp",
        "row_sum",
        "reciprocal",
        "mul",
    ]
    x = values(7, 41)
    torch.testing.assert_close(computed(reduced, x), computed(softmax, x), rtol=3e-7, atol=0.0)


def test_a_number_is_inverted_beforehand_and_one_reciprocal_serves_all():
    expression = Expression(
        (X, Y, S),
        (
            Instruction("const", (), 4.0),
            Instruction("div", (0, 3)),
            Instruction("div", (1, 3)),
            Instruction("div", (4, 2)),
            Instruction("add", (5, 6)),
        ),
        (7, 4),
        (False, False),
    )
    reduced = reduce_strength(expression)
    ops = [row.op for row in reduced.instructions]
    assert ops == ["const", "const", "mul", "mul", "reciprocal", "mul", "add"]
    assert reduced.instructions[1].value == 0.25
    x, y = values(3, 5), values(3, 1)
    torch.testing.assert_close(computed(reduced, x, y), computed(expression, x, y), rtol=3e-7, atol=1e-7)


def test_division_by_an_element_or_by_zero_stays_as_it_was():
    by_element = Expression((X, Y), (Instruction("div", (0, 1)),), (2,), (False,))
    assert reduce_strength(by_element) == by_element
    by_zero = Expression((X,), (Instruction("const", (), 0.0), Instruction("div", (0, 1))), (2,), (False,))
    x = torch.tensor([[1.0, -2.0]])
    assert computed(reduce_strength(by_zero), x)[0].tolist() == [[float("inf"), float("-inf")]]
