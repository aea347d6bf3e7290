# SPDX-License-Identifier: Apache-2.0
"""Tiles are listed once for problems that differ in names and scales alone."""

from dataclasses import dataclass, replace

import pytest

from quantrt.gpu import GpuFacts, gpu_named
from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.tactics.cuda.tiles_of import tiles_of

H200 = gpu_named("H200")


@dataclass(frozen=True)
class Problem:
    size: int
    epilogue: Expression


def problem(op: str = "mul", *, name: str = "a", value: float = 0.5, size: int = 3) -> Problem:
    operands = (Operand("accumulator"), Operand("constant", name, (name, 1)), Operand("scalar", value=value))
    steps = (Instruction("add", (0, 1)), Instruction(op, (3, 2)))
    return Problem(size, Expression(operands, steps, (4,), (False,)))


class Counting:
    """Lists one tile, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[Problem] = []

    def __call__(self, problem: Problem, device: GpuFacts) -> tuple[str, ...]:
        self.asked.append(problem)
        return (f"{problem.size} on {device.name}",)


def test_equal_problems_are_listed_once():
    configs = Counting()
    assert tiles_of(configs, problem(), H200) == ("3 on H200",)
    assert tiles_of(configs, problem(name="b", value=0.25), H200) == ("3 on H200",)
    assert len(configs.asked) == 1
    assert all(not operand.name for operand in configs.asked[0].epilogue.operands)


@pytest.mark.parametrize(
    "other", [problem("div"), problem(size=4), replace(problem(), epilogue=problem("max").epilogue)]
)
def test_other_problems_are_listed_for_themselves(other: Problem):
    configs = Counting()
    tiles_of(configs, problem(), H200)
    tiles_of(configs, other, H200)
    tiles_of(configs, other, gpu_named("A100"))
    assert len(configs.asked) == 3


def test_exponents_count():
    """A power of 2 is a product, one of 2.5 takes a hundred instructions."""
    configs = Counting()
    tiles_of(configs, problem("pow", value=2.0), H200)
    tiles_of(configs, problem("pow", value=2.5), H200)
    assert [asked.epilogue.operands[2].value for asked in configs.asked] == [2.0, 2.5]
