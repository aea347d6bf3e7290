# SPDX-License-Identifier: Apache-2.0
"""Epilogues taken apart still mean the same."""

import pytest
import torch

from quantrt.regions.expression import Expression, Instruction, Operand
from quantrt.runtime.cuda.reference.evaluate import evaluate
from quantrt.tactics.cuda.forms.epilogues import (
    as_rows,
    is_relu,
    is_residual_relu,
    scaled_accumulator,
    split_bias,
    unclipped,
)

SUM, BIAS, SCALE = Operand("accumulator"), Operand("constant", "bias"), Operand("constant", "scale")
TENSOR, ZERO, STEP = Operand("tensor", "r"), Operand("scalar", value=0.0), Operand("scalar", value=0.5)
CONSTANTS = {"bias": torch.tensor([1.0, -2.0, 3.0]), "scale": torch.tensor([0.5, 0.25, 2.0])}


def expression(
    operands: tuple[Operand, ...], *steps: tuple, outputs: tuple[int, ...] | None = None
) -> Expression:
    """Steps are (op, arg, ...); the last is the output."""
    instructions = tuple(Instruction(op, tuple(args)) for op, *args in steps)
    last = len(operands) + len(steps) - 1
    return Expression(operands, instructions, outputs or (last,), (False,) * len(outputs or (last,)))


def value(found: Expression, sums: torch.Tensor, residual: torch.Tensor) -> list[torch.Tensor]:
    tensors = [residual for operand in found.operands if operand.kind == "tensor"]
    return evaluate(found, sums, tensors, CONSTANTS)


@pytest.fixture
def numbers() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[1.0, 2.0, -3.0], [-8.0, 0.0, 5.0]]), torch.tensor(
        [[0.5, -4.0, 1.0], [9.0, 2.0, 0.0]]
    )


CHAINS = {
    "bias": expression((SUM, BIAS), ("add", 0, 1)),
    "bias on the left": expression((SUM, BIAS), ("add", 1, 0)),
    "bias relu": expression((SUM, BIAS, ZERO), ("add", 0, 1), ("max", 3, 2)),
    "bias residual relu": expression((SUM, BIAS, TENSOR, ZERO), ("add", 0, 1), ("add", 4, 2), ("max", 5, 3)),
    "scale bias": expression((SUM, SCALE, BIAS), ("mul", 0, 1), ("add", 3, 2)),
    "bias is read again": expression((SUM, BIAS, SCALE), ("add", 0, 1), ("mul", 3, 1), ("mul", 4, 2)),
    "sums are read twice": expression((SUM, BIAS), ("add", 0, 1), ("mul", 2, 0)),
    "sums are stored": expression((SUM, BIAS), ("add", 0, 1), outputs=(2, 0)),
    "codes": expression((SUM, BIAS, STEP), ("add", 0, 1), ("quantize", 3, 2)),
    "doubled": expression((SUM,), ("add", 0, 0)),
    "nothing": Expression((SUM,), (), (0,), (False,)),
}
SPLIT = {"bias", "bias on the left", "bias relu", "bias residual relu", "bias is read again", "codes"}


@pytest.mark.parametrize("name", CHAINS)
def test_bias_and_rest_are_the_whole(name: str, numbers: tuple[torch.Tensor, torch.Tensor]):
    sums, residual = numbers
    found = split_bias(CHAINS[name])
    assert (found.bias == "bias") == (name in SPLIT)
    biased = sums + CONSTANTS["bias"] if found.bias else sums
    for got, want in zip(value(found.rest, biased, residual), value(CHAINS[name], *numbers), strict=True):
        assert torch.equal(got, want)


def test_an_unused_bias_is_gone():
    rest = split_bias(CHAINS["bias"]).rest
    assert rest.is_identity
    assert rest.operands == (SUM,)
    kept = split_bias(CHAINS["bias is read again"]).rest
    assert BIAS in kept.operands


@pytest.mark.parametrize("name", CHAINS)
def test_a_scaled_accumulator_is_scaled_back(name: str, numbers: tuple[torch.Tensor, torch.Tensor]):
    sums, residual = numbers
    found = scaled_accumulator(CHAINS[name], 8.0)
    for got, want in zip(value(found, sums / 8, residual), value(CHAINS[name], *numbers), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("name", CHAINS)
def test_over_stored_sums(name: str, numbers: tuple[torch.Tensor, torch.Tensor]):
    sums, residual = numbers
    found = as_rows(CHAINS[name])
    tensors = [sums, *([residual] if TENSOR in found.operands else [])]
    for got, want in zip(
        evaluate(found, None, tensors, CONSTANTS), value(CHAINS[name], *numbers), strict=True
    ):
        assert torch.equal(got, want)


def test_what_is_a_relu():
    relu = [name for name, chain in CHAINS.items() if is_relu(split_bias(chain).rest)]
    assert relu == ["bias relu"]
    residual = [name for name, chain in CHAINS.items() if is_residual_relu(split_bias(chain).rest)]
    assert residual == ["bias residual relu"]


def test_what_is_none():
    six = Operand("scalar", value=6.0)
    assert not is_relu(expression((SUM, six), ("max", 0, 1)))
    assert not is_relu(expression((SUM, ZERO), ("min", 0, 1)))
    assert not is_relu(expression((SUM, ZERO), ("max", 0, 1), outputs=(2, 0)))
    two = expression((SUM, TENSOR, TENSOR, ZERO), ("add", 0, 1), ("max", 4, 3))
    assert not is_residual_relu(two)
    assert not is_residual_relu(expression((SUM, TENSOR, ZERO), ("mul", 0, 1), ("max", 3, 2)))
    assert is_relu(Expression((SUM,), (Instruction("const"), Instruction("max", (1, 0))), (2,), (False,)))


RELU6 = (("max", 0, 1), ("min", 3, 2))
CLIPS = [
    ((("max", 0, 1),), 0.05, -128, 0),  # a ReLU, where the code of 0 is the least
    ((("max", 0, 1),), 0.05, -126, 3),  # and where it is not
    ((("max", 0, 1),), 0.05, 0, 3),
    (RELU6, 6.0 / 255, -128, 0),  # whose whole range is kept
    (RELU6, 5.5 / 255, -128, 0),
    (RELU6, 6.2 / 255, -128, 4),
    (RELU6, 6.0 / 127, 0, 3),
    ((("min", 2, 0), ("max", 1, 3)), 1e-39, -128, 0),  # 6 are more steps than float32 has
]
"""Steps over the sums, 0 and 6; scale and zero point; the register that is left."""


@pytest.mark.parametrize(("steps", "scale", "zero_point", "left"), CLIPS)
def test_clips_that_codes_do_anyway_are_left_out(
    steps: tuple[tuple, ...], scale: float, zero_point: int, left: int
):
    found = expression((SUM, ZERO, Operand("scalar", value=6.0)), *steps)
    register = unclipped(found, found.outputs[0], scale, zero_point)
    assert register == left
    sums = torch.cat([torch.linspace(-9.0, 9.0, 9001), torch.tensor([-torch.inf, torch.inf, torch.nan])])

    def codes(register: int) -> torch.Tensor:
        operands = (*found.operands, Operand("scalar", value=scale), Operand("scalar", value=zero_point))
        steps = [(x.op, *(arg if arg < 3 else arg + 2 for arg in x.args)) for x in found.instructions]
        last = register if register < 3 else register + 2
        whole = expression(operands, *steps, ("quantize_at", last, 3, 4))
        return evaluate(whole, sums, [], {})[0].nan_to_num(nan=-128.0)

    assert torch.equal(codes(register), codes(found.outputs[0]))
