# SPDX-License-Identifier: Apache-2.0
"""Shapes that references make are worked out once for steps that differ by names and scalars alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="references run in torch")

from quantrt.plan.program import Step  # noqa: E402
from quantrt.regions.expression import Expression, Instruction, Operand  # noqa: E402
from quantrt.regions.formula_json import to_json  # noqa: E402
from quantrt.regions.region import Rows  # noqa: E402
from quantrt.tactics.cuda.program.alike import Alike  # noqa: E402

VECTOR = np.zeros(3, np.float32)


def step(first: str, second: str, scalar: float = 1.0, stored: str = "float16", runner: str = "formula"):
    """(x * scalar + first) + second."""
    names = [Operand("constant", name) for name in (first, second)]
    operands = (Operand("tensor", "x of " + first), *names, Operand("scalar", value=scalar))
    made = (Instruction("mul", (0, 3)), Instruction("add", (4, 1)), Instruction("add", (5, 2)))
    formula = Rows(Expression(operands, made, (6,), (False,)))
    return Step(runner, "r", ("x",), ("y",), {"formula": to_json(formula), "outputs": [stored]})


def computed(*given) -> list[int]:
    """Which of (step, rows, weights) were computed, by their places."""
    alike, found = Alike(), []
    for place, (one, rows, weights) in enumerate(given):

        def compute(place=place, rows=rows):
            found.append(place)
            return [torch.empty_strided((rows, 3), (1, rows), dtype=torch.float16, device="meta")]

        x = torch.empty(rows, 3, device="meta")
        (y,) = alike.outputs(one, [x], [VECTOR] * weights, compute)
        assert (y.dtype, y.shape, y.stride()) == (torch.float16, (rows, 3), (1, rows))
        assert y.is_meta
    return found


def test_names_and_scalars_do_not_count():
    assert computed((step("a", "b"), 2, 2), (step("c", "d", 7.0), 2, 2), (step("a", "b"), 2, 2)) == [0]


def test_all_else_does():
    twice = step("a", "a")
    several = (
        (step("a", "b"), 2, 2),
        (step("a", "b"), 5, 2),
        (twice, 2, 2),
        (twice, 2, 1),
        (step("a", "b", stored="float32"), 2, 2),
    )
    assert computed(*several) == [0, 1, 2, 3, 4]


def test_steps_that_do_not_say_what_they_do_are_always_computed():
    assert computed(*[(step("a", "b", runner="view"), 2, 2)] * 2) == [0, 1]
