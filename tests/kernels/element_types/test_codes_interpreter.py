# SPDX-License-Identifier: Apache-2.0
"""Codes that come four to a register, and codes of what is never below 0, in Triton's interpreter."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from quantrt.kernels.expression.spec import program_of
from quantrt.kernels.jit.codes import CODE_OFFSET, four_raw_floats
from quantrt.kernels.jit.expression import evaluate, stored
from tests.kernels.memory_bound.expressions import TENSOR, Builder, scalar

SCALE = 0.0213


@triton.jit
def unpack(x_ptr, y_ptr, COUNT: tl.constexpr):
    offsets = tl.arange(0, COUNT)
    floats = four_raw_floats(tl.load(x_ptr + offsets))
    for i in tl.static_range(4):
        tl.store(y_ptr + 4 * offsets + i, floats[i] - CODE_OFFSET)


@triton.jit
def make_codes(
    x_ptr, y_ptr, COUNT: tl.constexpr, SCALE: tl.constexpr, PROGRAM: tl.constexpr, OUT: tl.constexpr
):
    offsets = tl.arange(0, COUNT)
    registers = evaluate(PROGRAM, (tl.load(x_ptr + offsets), SCALE))
    tl.store(y_ptr + offsets, stored(PROGRAM, OUT, registers, tl.int8, True))


def test_every_code_is_unpacked():
    codes = torch.arange(-128, 128, dtype=torch.int8)
    found = torch.empty(256)
    unpack[(1,)](codes.view(torch.int32), found, 64)
    assert torch.equal(found, codes.float())


@pytest.mark.parametrize("ending", ["relu", "relu6", "none"])
def test_codes_are_those_of_the_formula_with_and_without_a_least_one(ending):
    b = Builder(TENSOR, scalar(SCALE))
    y = {
        "relu": lambda: b("max", 0, b.const(0.0)),
        "relu6": lambda: b("min", b("max", b.const(0.0), 0), b.const(1.5)),
        "none": lambda: b("max", 0, b.const(-1.0)),
    }[ending]()
    expression = b.build(b("quantize", y, 1))
    ties = (np.arange(-256, 256) / 2 * np.float32(SCALE)).astype(np.float32)
    x = torch.from_numpy(np.concatenate([ties, [-1e30, 1e30, -0.0, 3.4]] + [[0.0]] * 508).astype(np.float32))
    found = torch.empty(len(x), dtype=torch.int8)
    make_codes[(1,)](x, found, len(x), SCALE, program_of(expression, ("int8",)), expression.outputs[0])
    least, most = {"relu": (0.0, np.inf), "relu6": (0.0, 1.5), "none": (-1.0, np.inf)}[ending]
    want = np.clip(np.rint(np.clip(x.numpy(), np.float32(least), most) / np.float32(SCALE)), -128, 127)
    np.testing.assert_array_equal(found.numpy(), want)
